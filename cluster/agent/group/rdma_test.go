//go:build (cgo || verbs) && (amd64 || arm64)

package group

import (
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/rdma/transport"
	"github.com/tfcluster/tfcluster/rdma/verbs/verbstest"
)

// TestRDMA: members of several hosts make their calls by RDMA if both ends of a connection can use it. Otherwise they
// use TCP, and a note has the reason. At the end no memory is registered, which the stub checks.
func TestRDMA(t *testing.T) {
	stub := verbstest.New(t)
	with := transport.DefaultVerbs("stub_0", 1, 1)
	with.Library = stub.Path
	none := with
	none.Library = "libibverbs-of-nobody.so.1"
	const noLibrary = "collective calls between hosts use TCP, not RDMA by stub_0: open libibverbs-of-nobody.so.1: "
	for name, c := range map[string]struct {
		hosts []string
		rdma  []*transport.VerbsSettings
		fails string
		want  []string // beginnings of the notes
	}{
		"two hosts":   {[]string{"a", "b"}, []*transport.VerbsSettings{&with, &with}, "", nil},
		"three hosts": {[]string{"a", "b", "a", "c"}, []*transport.VerbsSettings{&with, &with, &with, &with}, "", nil},
		"one host":    {[]string{"a", "a"}, []*transport.VerbsSettings{&none, &none}, "", nil},
		"not chosen": {[]string{"a", "b"}, []*transport.VerbsSettings{nil, &with}, "", []string{
			"collective calls with worker:0 use TCP, not RDMA: the peer has none",
		}},
		"no library": {
			[]string{"a", "b", "a"}, []*transport.VerbsSettings{&none, &none, &none}, "", []string{noLibrary, noLibrary},
		},
		"one has none": {[]string{"a", "b"}, []*transport.VerbsSettings{&with, &none}, "", []string{
			noLibrary, "collective calls with worker:1 use TCP, not RDMA: the peer has none",
		}},
		"too little room": {[]string{"a", "b"}, []*transport.VerbsSettings{&with, nil}, "ibv_reg_mr", []string{
			"collective calls between hosts use TCP, not RDMA by stub_0: let the network use the memory of worker:",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			stub.Fail(c.fails, syscall.ENOMEM)
			defer stub.Fail("", 0)
			var mu sync.Mutex
			var notes []string
			all := openWith(t, c.rdma, func(_ int, text string) {
				mu.Lock()
				defer mu.Unlock()
				notes = append(notes, text)
			}, c.hosts...)
			testCalls(t, all)
			for _, m := range all {
				m.Close()
			}
			slices.Sort(notes)
			if len(notes) != len(c.want) {
				t.Fatalf("notes %q", notes)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(notes[i], want) || strings.Contains(notes[i], "\n") {
					t.Errorf("note %q, want %q", notes[i], want)
				}
			}
		})
	}
}
