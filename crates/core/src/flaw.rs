//! Deliberate flaws: rules that tests break on purpose, to show that they would notice.
//!
//! Only the feature `flaws` can inject one, and only the tests of this workspace turn it on. Without it an [`Injected`]
//! takes no memory and [`Injected::is`] is a constant, so that no machine code is left of any flaw.

use std::marker::PhantomData;

/// The flaw of kind `F` that is in force, if any.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected<F> {
    #[cfg(feature = "flaws")]
    flaw: Option<F>,
    kind: PhantomData<F>,
}

#[cfg(not(feature = "flaws"))]
const _: () = assert!(size_of::<Injected<u8>>() == 0, "a build without the feature carries a flaw");

impl<F: PartialEq> Injected<F> {
    /// No flaw.
    pub const NONE: Injected<F> = Injected {
        #[cfg(feature = "flaws")]
        flaw: None,
        kind: PhantomData,
    };

    /// This flaw.
    #[cfg(feature = "flaws")]
    pub const fn of(flaw: F) -> Injected<F> {
        Injected { flaw: Some(flaw), kind: PhantomData }
    }

    /// Whether it is this flaw.
    #[cfg(feature = "flaws")]
    pub fn is(&self, flaw: F) -> bool {
        self.flaw == Some(flaw)
    }

    /// Without the feature there is none.
    #[cfg(not(feature = "flaws"))]
    #[inline(always)]
    pub fn is(&self, _: F) -> bool {
        false
    }
}
