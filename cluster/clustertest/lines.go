package clustertest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func testFlood(t *testing.T, h Harness) {
	const n = 50_000
	c := h.Start(t, "worker=1")
	r := c.Script(fmt.Sprintf("for i in range(%d):\n    print('line', i)\n", n))
	if st := r.Wait(); st.GetState() != "finished" || st.GetLines() != n {
		t.Fatalf("the run is %s with %d lines: %v", st.GetState(), st.GetLines(), st.GetFailure())
	}
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	s, err := c.Client.Logs(ctx, &clusterpb.LogsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := 0
	for {
		u, err := s.Recv()
		if err != nil {
			break
		}
		for _, l := range u.GetLines() {
			if want := fmt.Sprintf("line %d", next); l.GetText() != want {
				t.Fatalf("line %d is %q", next, l.GetText())
			}
			next++
		}
	}
	if next != n {
		t.Errorf("%d of %d lines are in the store", next, n)
	}
}

func testOddLines(t *testing.T, h Harness) {
	c := h.Start(t, "worker=1")
	r := c.Script(`
import os, sys
os.write(1, b"caf\xc3\xa9 \xff\n")
os.write(1, b"a\rb\rbar done\n")
os.write(1, b"x" * 300_000 + b"\n")
os.write(2, b"no end")
`)
	if st := r.Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v", st.GetState(), st.GetFailure())
	}
	for _, want := range []string{
		"[worker:0] café \uFFFD", "[worker:0] bar done", strings.Repeat("x", 300_000), "[worker:0] no end",
	} {
		if !strings.Contains(r.Text(), want) {
			t.Errorf("no line %.40q", want)
		}
	}
}
