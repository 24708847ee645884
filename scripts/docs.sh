#!/usr/bin/env bash
# Builds the site into target/site/html: tutorials, how-tos, reference and explanation with search (mdBook), and the API
# documentation beside it. Every link of the site is checked.
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

mdbook_version=0.5.4
target=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
mdbook=$target/tools/bin/mdbook
if ! "$mdbook" --version 2>/dev/null | grep -qF "$mdbook_version"; then
    echo "docs: building mdBook $mdbook_version, once"
    cargo install mdbook --version "$mdbook_version" --locked --no-default-features --features search \
        --root "$target/tools" --target-dir "$target/tools/build"
    rm -rf "$target/tools/build"
fi

site=$target/site
rm -rf "$site"
mkdir -p "$site/src"
cp docs/book.toml "$site"
cp README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md CITATION.cff LICENSE-APACHE LICENSE-MIT "$site/src"
cp -r docs "$site/src/docs"
rm "$site/src/docs/book.toml"
for tests in tests/*/README.md; do
    mkdir -p "$site/src/$(dirname "$tests")"
    cp "$tests" "$site/src/$tests"
done
# What pages link to outside of docs: sources, which the site has as they are.
for path in $(grep -rhoE '\]\((\.\./)+[^)#]*' docs --include='*.md' | sed -E 's|.*\]\((\.\./)+||' | sort -u); do
    if [ -e "$path" ] && [ ! -e "$site/src/$path" ]; then
        mkdir -p "$site/src/$(dirname "$path")"
        cp -r "$path" "$site/src/$path"
    fi
done

# A folder's README is its index.
find "$site/src" -name '*.md' -exec sed -i -E 's/(\]\([^)#:]*)README\.md([)#])/\1index.md\2/g' {} +

# page FILE: a line of the contents, named as the page's first heading.
page() {
    local title
    title=$(grep -m 1 '^# ' "$site/src/$1" | sed -e 's/^# //' -e 's/[][]//g')
    echo "- [$title]($1)"
}
pages() {
    local file
    for file in "$@"; do
        if [ "${file##*/}" != README.md ]; then page "$file"; fi
    done
}
tutorials='first-replay postgresql redis sqlite rocksdb log-library'
(
    cd "$site/src"
    echo '# Summary'
    echo '[Tidewater](README.md)'
    echo '[What is where](docs/README.md)'
    printf '\n# Tutorials\n\n'
    page docs/guide/README.md
    for name in $tutorials; do page "docs/guide/$name.md"; done
    printf '\n# How-tos\n\n'
    for file in docs/guide/*.md; do
        name=$(basename "$file" .md)
        case " $tutorials README " in *" $name "*) ;; *) page "$file" ;; esac
    done
    printf '\n# Reference\n\n'
    pages docs/reference/*.md
    printf '\n# Explanation\n\n'
    page ARCHITECTURE.md
    pages docs/papers.md docs/reliability.md docs/internals/*.md
    page docs/adr/README.md
    pages docs/adr/*.md | sed 's/^/  /'
    printf '\n# Project\n\n'
    page CONTRIBUTING.md
    for tests in tests/*/README.md; do page "$tests"; done
    page CHANGELOG.md
) >"$site/src/SUMMARY.md"
"$mdbook" build "$site" 2>&1 | grep -vE 'INFO' || true
[ -f "$site/html/index.html" ]

# Links between pages, and their anchors.
cd "$site/html"
find . -name '*.html' ! -name print.html ! -name 404.html ! -name 'toc*.html' -print0 |
    xargs -0 grep -oE '(href|src)="[^"]*"' | sed -E 's/(href|src)="([^"]*)"$/\2/' |
    grep -vE '^[^:]*:([a-z]+:|//)' | sort -u >"$site/links"
broken=0
while IFS=: read -r file link; do
    path=${link%%#*} anchor=
    case $link in *'#'*) anchor=${link#*#} ;; esac
    to=$file
    if [ -n "$path" ]; then to=$(dirname "$file")/$path; fi
    if [ ! -e "$to" ] || { [ -n "$anchor" ] && [ -f "$to" ] && ! grep -qF "id=\"$anchor\"" "$to"; }; then
        echo "docs: $file: nothing at $link" >&2
        broken=$((broken + 1))
    fi
done <"$site/links"
echo "docs: $(find . -name '*.html' | wc -l) pages, $(wc -l <"$site/links") links, $broken broken"
[ "$broken" = 0 ]
if [ "${DOCS_API:-yes}" = yes ]; then
    cd "$root"
    cargo doc --locked --workspace --no-deps
    cp -r "$target/doc" "$site/html/api"
fi
echo "The site: file://$site/html/index.html"
