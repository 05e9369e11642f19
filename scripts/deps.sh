#!/usr/bin/env bash
# Brings the Debian 12 packages that building and testing kvferry need. Does nothing where they are all there.
#   scripts/deps.sh          installs what is missing, as root or through sudo
#   scripts/deps.sh --list   prints the names
# KVFERRY_SKIP_DEPS=1 skips the check, for machines that bring the libraries in another way.
set -euo pipefail

# Pinned in the name where the version matters: Boost 1.81 (Debian's plain libboost-dev is 1.74 and has no JSON), and
# clang 14, since formatting and lint differ from one version to the next.
packages=(
  g++ cmake ninja-build make pkg-config git python3 iproute2 procps
  libboost1.81-dev libboost-json1.81-dev
  libprotobuf-dev protobuf-compiler
  libssl-dev libspdlog-dev libfmt-dev libcli11-dev
  libgtest-dev libgmock-dev librapidcheck-dev libseccomp-dev
  clang-14 libclang-rt-14-dev clang-format-14 clang-tidy-14
)

if [[ ${1:-} == --list ]]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi
if [[ ${KVFERRY_SKIP_DEPS:-0} == 1 ]]; then
  echo "deps: not checked, KVFERRY_SKIP_DEPS=1"
  exit 0
fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "deps: this is not a Debian system, so nothing can be installed by name. Install what Debian 12 calls" >&2
  echo "  ${packages[*]}" >&2
  echo "and run the command again with KVFERRY_SKIP_DEPS=1." >&2
  exit 1
fi

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    if [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true) != installed ]]; then
      echo "$package"
    fi
  done
}

mapfile -t missing < <(missing_packages)
if ((${#missing[@]} == 0)); then
  echo "deps: all ${#packages[@]} packages are there"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "deps: missing ${missing[*]}" >&2
    echo "deps: you are not root and there is no sudo. As root, run:  apt-get update && apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

apt() { # every apt-get call: no questions, and a few tries, since mirrors have bad minutes
  local try
  for try in 1 2 3; do
    if "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 \
      -o DPkg::Lock::Timeout=120 "$@" </dev/null; then
      return 0
    fi
    if ((try < 3)); then
      echo "deps: apt-get $1 failed, trying again in $((try * 5)) s" >&2
      sleep $((try * 5))
    fi
  done
  return 1
}

echo "deps: installing ${#missing[@]} of ${#packages[@]} packages: ${missing[*]}"
if [[ $(dpkg-query -W -f='${db:Status-Status}' libboost1.74-dev 2>/dev/null || true) == installed ]]; then
  echo "deps: libboost1.81-dev takes the place of libboost1.74-dev, which conflicts with it"
fi

# The lists are fetched only where they do not know a package, or where a first try shows that they are stale.
if ! "${as_root[@]}" apt-get -q -y -s install --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
  apt update || { echo "deps: apt-get update failed; is the network there?" >&2; exit 1; }
  updated=1
fi
if ! apt install --no-install-recommends "${missing[@]}"; then
  if [[ ${updated:-0} == 1 ]] || ! apt update || ! apt install --no-install-recommends "${missing[@]}"; then
    echo "deps: apt-get could not install: ${missing[*]}" >&2
    echo "deps: kvferry is built on Debian 12 (bookworm); its words above say which package is the trouble." >&2
    exit 1
  fi
fi

mapfile -t missing < <(missing_packages)
if ((${#missing[@]} > 0)); then
  echo "deps: still missing after the installation: ${missing[*]}" >&2
  exit 1
fi
echo "deps: all ${#packages[@]} packages are there now"
