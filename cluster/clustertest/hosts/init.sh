# The first process of a host: it makes its mounts, and lives until its input ends, which is with the test.
# Its end ends every process of the host. Arguments: the host's name, its disk, then pairs of a shared folder and the
# place below the disk, or elsewhere, where the host sees it.
set -eu
name=$1 disk=$2
shift 2
hostname "$name"
while read -r _ _ _ _ point _; do # what other disks of the machine have, too, can only be read
  case $point in
  / | /proc* | /sys* | /dev*) ;;
  *) mount -o remount,bind,ro "$point" 2>/dev/null || true ;; # not every kind of mount can be changed
  esac
done </proc/self/mountinfo
mount --bind "$disk" "$disk" # a mount of its own, which can be written when / cannot
while [ $# -gt 0 ]; do
  mkdir -p "$2"
  mount --bind "$1" "$2"
  mount -o remount,bind,ro "$2"
  shift 2
done
for file in hosts hostname resolv.conf machine-id; do
  [ ! -e "/etc/$file" ] || mount --bind "$disk/etc/$file" "/etc/$file"
done
mount --bind "$disk/etc/boot_id" /proc/sys/kernel/random/boot_id
mount -t sysfs sysfs /sys # its network interfaces
mount -t cgroup2 -o ro cgroup2 /sys/fs/cgroup || true
mount -t tmpfs -o size=4g tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount --bind "$disk/var-tmp" /var/tmp
mount --rbind "$disk/home" /home
mount -o remount,bind,ro / # what is written elsewhere is an error, not a hidden way between hosts
mount --rbind "$disk/tmp" /tmp # last: the disk may lie below it
cd /
echo ready
while read -r _; do :; done
