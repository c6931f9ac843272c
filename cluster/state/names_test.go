package state

import (
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestNextNumber: a number never returns, whoever asks, and is above those that clusters and records have.
func TestNextNumber(t *testing.T) {
	t.Setenv("TFCLUSTER_HOME", t.TempDir())
	next := func(backend string, want int) {
		t.Helper()
		if n, err := NextNumber(t.Context(), backend); n != want || err != nil {
			t.Errorf("the next number of %s is %d, %v, want %d", backend, n, err, want)
		}
	}
	next("one", 1)
	next("one", 2)
	next("other", 1)
	if err := (&ClusterRecord{Name: "one-16", Since: time.Now()}).Save(); err != nil {
		t.Fatal(err)
	}
	next("one", 17)
	if _, err := ClaimName("one-40", "one"); err != nil {
		t.Fatal(err)
	}
	next("one", 41)
	var all sync.Map
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			n, err := NextNumber(t.Context(), "one")
			if _, twice := all.LoadOrStore(strconv.Itoa(n), true); twice || err != nil {
				t.Errorf("number %d twice, or %v", n, err)
			}
		})
	}
	wg.Wait()
}
