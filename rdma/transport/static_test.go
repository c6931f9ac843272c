//go:build !((cgo || verbs) && (amd64 || arm64))

package transport

import "testing"

// verbsWays returns no ways: the tests are linked statically.
func verbsWays(testing.TB) []way { return nil }
