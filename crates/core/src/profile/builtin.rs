//! The profiles that are compiled in, so that the installed binary works outside the checkout.

use super::Profile;

/// Name and text. The first is the default.
const BUILTIN: &[(&str, &str)] = &[
    ("generic", include_str!("../../profiles/generic.toml")),
    ("tlc-client", include_str!("../../profiles/tlc-client.toml")),
    ("tlc-enterprise", include_str!("../../profiles/tlc-enterprise.toml")),
    ("slc-cbm", include_str!("../../profiles/slc-cbm.toml")),
    ("villars", include_str!("../../profiles/villars.toml")),
    ("log", include_str!("../../profiles/log.toml")),
    ("2b-ssd", include_str!("../../profiles/2b-ssd.toml")),
    ("ull-ssd", include_str!("../../profiles/ull-ssd.toml")),
    ("dc-ssd", include_str!("../../profiles/dc-ssd.toml")),
    ("ssd-a", include_str!("../../profiles/ssd-a.toml")),
    ("ssd-b", include_str!("../../profiles/ssd-b.toml")),
    ("ssd-c", include_str!("../../profiles/ssd-c.toml")),
    ("ssd-d", include_str!("../../profiles/ssd-d.toml")),
    ("ssd-e", include_str!("../../profiles/ssd-e.toml")),
    ("ssd-f", include_str!("../../profiles/ssd-f.toml")),
    ("tiny", include_str!("../../profiles/tiny.toml")),
];

/// The names of the built-in profiles; the default one, `generic`, comes first.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// The built-in profile of that name.
pub fn builtin(name: &str) -> Option<Profile> {
    let text = builtin_text(name)?;
    Some(Profile::parse(text, name).unwrap_or_else(|error| unreachable!("a built-in profile does not parse: {error}")))
}

/// The file behind a built-in profile, with its comments.
pub fn builtin_text(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
