#!/bin/busybox sh
# The guest's first process: makes an RDMA device of an Ethernet one, runs /t/run.sh and powers off.
export PATH=/bin HOME=/root
/bin/busybox --install -s /bin 2>/dev/null # not over ip, which is iproute2's
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /run
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
ulimit -l unlimited
for m in crc32_generic rdma_rxe ib_uverbs veth; do modprobe $m; done
/bin/ip link set lo up
/bin/ip link add v0 mtu 9000 type veth peer name v1 mtu 9000
/bin/ip addr add 10.9.0.1/24 dev v0
/bin/ip link set v1 up
/bin/ip link set v0 up
rdma link add rxe0 type rxe netdev v0
n=0
until grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state || [ $n = 50 ]; do
  sleep 0.1
  n=$((n + 1))
done
echo "guest: Linux $(uname -r), $(nproc) processors, rxe0 is $(cat /sys/class/infiniband/rxe0/ports/1/state), up for $(cut -d' ' -f1 /proc/uptime) s"
sh /t/run.sh
echo "guest: the script has ended with $?"
poweroff -f
