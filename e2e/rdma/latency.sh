# The measurement in the guest.
echo "== latency"
TFCLUSTER_TEST_RDMA=rxe0 TFCLUSTER_TEST_LATENCY=1 /t/transport.test -test.run 'TestLatency$' || exit 1
