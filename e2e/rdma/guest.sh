#!/bin/bash
# Runs a script in a guest with RDMA in software: guest.sh SECONDS SCRIPT FILE…
#
# The kernel of this machine need not have RDMA: qemu emulates one with Debian's kernel, whose module rdma_rxe sends RDMA
# over Ethernet (soft-RoCE). Packages are downloaded by apt and unpacked below .rdma, not installed. SCRIPT and the FILEs,
# with the libraries that they need, are in /t of the guest. The exit code is the script's; 77: the guest cannot be had,
# and the last line says why.
#
# qemu does without kvm: in a virtual machine that has a kvm of its own, Debian's kernel may hang in it without a word.
set -euo pipefail

limit=$1 script=$2
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$(cd "$here/../.." && pwd)/.rdma
root=$cache/root            # what is unpacked of the packages
libraries=usr/lib/x86_64-linux-gnu
path=$root/$libraries:$root/lib/x86_64-linux-gnu
modules="rdma_rxe ib_uverbs ib_core udp_tunnel ip6_udp_tunnel configfs veth crc32_generic crc32c_generic libcrc32c"

skip() { echo "make test-rdma is skipped: $*"; exit 77; }

packages() { # prints the packages that are needed: some always, the rest where this machine lacks them
  local wanted="busybox-static iproute2 ibverbs-providers libibverbs1 libibverbs-dev libnl-3-200 libnl-route-3-200"
  echo "$kernel $wanted"
  apt-get install --print-uris -qq --no-install-recommends qemu-system-x86 $wanted | sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p"
}

prepare() {
  [ "$(uname -sm)" = "Linux x86_64" ] || skip "it needs Linux on x86_64, and this is $(uname -sm)"
  for tool in apt-get apt-cache dpkg-deb ldd timeout; do
    command -v $tool >/dev/null || skip "$tool is missing: the guest is made of Debian's packages"
  done
  mkdir -p "$cache/debs"
  if [ -z "$(apt-cache search --names-only '^linux-image-amd64$')" ]; then
    apt-get update -qq >/dev/null 2>&1 || skip "apt has no lists of packages, and apt-get update fails"
  fi
  kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ {print $2; exit}')
  [ -n "$kernel" ] || skip "apt does not know linux-image-amd64: Debian's kernel is needed"
  local names
  names=$(packages | tr ' ' '\n' | sort -u) || skip "apt cannot resolve the packages"
  (cd "$cache/debs" && apt-get download -qq -o APT::Sandbox::User=root $names) || skip "apt cannot download its packages"
  rm -rf "$root" && mkdir "$root"
  for deb in "$cache"/debs/*.deb; do
    case $(basename "$deb") in "$kernel"_*) continue ;; esac
    dpkg-deb -x "$deb" "$root"
  done
  base
  touch "$cache/.done"
}

put() { # put FILE PLACE: copies a program or a library into $guest, with the libraries that it needs
  mkdir -p "$guest/$(dirname "$2")" && cp -L "$1" "$guest/$2"
  { LD_LIBRARY_PATH=$path ldd "$1" 2>/dev/null || true; } | awk '$2 == "=>" {print $3} $1 ~ /^\// {print $1}' |
    while read -r library; do
      local place=${library#"$root"}
      [ -e "$guest/$place" ] || { mkdir -p "$guest/$(dirname "$place")" && cp -L "$library" "$guest/$place"; }
    done
}

archive() { (cd "$guest" && find . | "$root/bin/busybox" cpio -o -H newc 2>/dev/null | gzip -1); }

base() { # the kernel, its modules and the programs that init needs
  guest=$(mktemp -d) && chmod 755 "$guest"
  local release=${kernel#linux-image-} patterns=("./boot/vmlinuz-*" "./lib/modules/*/modules.*") m
  for m in $modules; do patterns+=("./lib/modules/*/$m.ko*"); done
  dpkg-deb --fsys-tarfile "$cache/debs/${kernel}"_*.deb | tar x -C "$guest" --wildcards "${patterns[@]}"
  mv "$guest"/boot/vmlinuz-* "$cache/vmlinuz" && rmdir "$guest/boot"
  "$root/bin/busybox" depmod -b "$guest" "$release"
  mkdir -p "$guest"/{bin,proc,sys,dev,tmp,run,root,t,etc/libibverbs.d}
  cp "$root/bin/busybox" "$guest/bin/busybox"
  put "$(find "$root/bin" "$root/usr/bin" -name ip -type f)" bin/ip
  put "$(find "$root/bin" "$root/usr/bin" -name rdma -type f)" bin/rdma
  put "$root/$libraries/libibverbs.so.1" "$libraries/libibverbs.so.1"
  for m in "$root/$libraries"/libibverbs/librxe-*.so; do put "$m" "$libraries/libibverbs/$(basename "$m")"; done
  cp "$root/etc/libibverbs.d/rxe.driver" "$guest/etc/libibverbs.d/"
  install -m 755 "$here/init.sh" "$guest/init"
  archive >"$cache/base.gz"
  rm -rf "$guest"
}

boot() { # runs the guest and prints its console
  local emulator=$root/usr/bin/qemu-system-x86_64
  [ -x "$emulator" ] || emulator=$(command -v qemu-system-x86_64) || skip "qemu-system-x86_64 is missing"
  guest=$(mktemp -d) && chmod 755 "$guest"
  initrd=$(mktemp) console=$(mktemp)
  trap 'rm -rf "$guest" "$initrd" "$console"' EXIT
  mkdir "$guest/t" && cp "$script" "$guest/t/run.sh"
  for file; do put "$file" "t/$(basename "$file")"; done
  archive | cat "$cache/base.gz" - >"$initrd"
  LD_LIBRARY_PATH=$path QEMU_MODULE_DIR=$root/$libraries/qemu timeout -s KILL "$limit" "$emulator" \
    -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" -accel tcg,thread=multi -cpu max -smp 2 -m 2048 \
    -kernel "$cache/vmlinuz" -initrd "$initrd" -append "console=ttyS0 quiet panic=-1" \
    -nographic -no-reboot -nodefaults -serial stdio </dev/null | tr -d '\r' | sed -u 's/\x1b\[[0-9;?]*[A-Za-z]//g; s/^\x1bc//' | tee "$console" || true # killed at the limit
}

# Packages of another day, or another guest.
[ "$cache/.done" -nt "$here/guest.sh" ] && [ "$cache/.done" -nt "$here/init.sh" ] || prepare
boot "$@"
status=$(sed -n 's/^guest: the script has ended with \([0-9]*\)$/\1/p' "$console")
[ -n "$status" ] || { echo "the guest has not ended its script within $limit s"; exit 1; }
exit "$status"
