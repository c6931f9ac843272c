// Package verbstest has a libibverbs for tests on machines without RDMA (testdata/stub.c): its device connects queue
// pairs of one process and fails as a test asks. Tests that use it have the tag of package verbs' load.go.
package verbstest
