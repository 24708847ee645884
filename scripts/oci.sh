#!/usr/bin/env bash
# Builds a container image (OCI layout) from the Debian packages into target/oci, without a daemon: a Debian base of
# mmdebstrap with the package installed is its one layer. Needs root and mmdebstrap.
#
#   skopeo copy oci:target/oci:VERSION docker-daemon:tidewater:VERSION    # or podman pull oci:target/oci:VERSION
set -euo pipefail
# shellcheck source=scripts/toolchain.sh
. "$(dirname "${BASH_SOURCE[0]}")/toolchain.sh"
cd "$root"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
target=${CARGO_TARGET_DIR:-target}
out=$target/oci
if ! command -v mmdebstrap >/dev/null; then
    if [ "$(id -u)" != 0 ]; then
        echo 'oci: mmdebstrap is missing: sudo apt-get install mmdebstrap' >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends mmdebstrap </dev/null
fi
ls "$target"/deb/tidewater_*.deb >/dev/null 2>&1 || scripts/deb.sh

rm -rf "$out"
mkdir -p "$out/blobs/sha256"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
export SOURCE_DATE_EPOCH
mmdebstrap --quiet --variant=minbase --include=systemd-standalone-sysusers \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --customize-hook="cp $target/deb/tidewater_*.deb \"\$1/tmp/tidewater.deb\"" \
    --customize-hook='chroot "$1" dpkg -i /tmp/tidewater.deb' \
    --customize-hook='rm -rf "$1/tmp/tidewater.deb" "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*' \
    "$codename" "$work/layer.tar"

# blob FILE: moves it to where its digest says, and prints "DIGEST SIZE".
blob() {
    local digest size
    digest=$(sha256sum "$1" | cut -d ' ' -f 1)
    size=$(stat -c %s "$1")
    mv "$1" "$out/blobs/sha256/$digest"
    echo "sha256:$digest $size"
}
plain=sha256:$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
gzip -n "$work/layer.tar"
read -r layer layer_size < <(blob "$work/layer.tar.gz")
created=$(date -ud "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
architecture=$(dpkg --print-architecture)
cat >"$work/config" <<END
{"created":"$created","architecture":"$architecture","os":"linux",
 "config":{"Entrypoint":["tidewater"],"Cmd":["--help"],"WorkingDir":"/work","Volumes":{"/work":{}},
  "Labels":{"org.opencontainers.image.title":"tidewater","org.opencontainers.image.version":"$version",
   "org.opencontainers.image.licenses":"Apache-2.0 OR MIT"}},
 "rootfs":{"type":"layers","diff_ids":["$plain"]},
 "history":[{"created":"$created","created_by":"scripts/oci.sh"}]}
END
read -r config config_size < <(blob "$work/config")
cat >"$work/manifest" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
 "config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"$config","size":$config_size},
 "layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"$layer","size":$layer_size}]}
END
read -r manifest manifest_size < <(blob "$work/manifest")
cat >"$out/index.json" <<END
{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"$manifest",
 "size":$manifest_size,"annotations":{"org.opencontainers.image.ref.name":"$version"}}]}
END
echo '{"imageLayoutVersion":"1.0.0"}' >"$out/oci-layout"
echo "$out ($((layer_size >> 20)) MiB): podman run --rm -v \"\$PWD\":/work oci:$out:$version replay --trace sample"
