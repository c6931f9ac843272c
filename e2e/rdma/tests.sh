# The tests in the guest: packages by the names of their test programs, in /t.
export TFCLUSTER_TEST_RDMA=rxe0 TFCLUSTER_TEST_RDMA_ADDRESS=10.9.0.1
cd /tmp
failed=0
tests() { # tests PACKAGE PATTERN
  echo "== $1: $2"
  /t/"$1".test -test.timeout 280s -test.run "$2" || failed=1
}
tests fabric TestSoftRoCE
tests transport 'TestConformance/^RDMA$|TestUnprivileged'
tests collective 'TestTraining|TestKilled|TestStopped|TestByRDMA'
. /t/latency.sh
tail -n +1 /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts /sys/class/infiniband/rxe0/ports/1/hw_counters/rdma_recvs | grep '^[0-9]' | tr '\n' ' '
echo "packets and messages were received by the device"
exit $failed
