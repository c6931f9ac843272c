package spool_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/runfiles/spool"
)

// testCheck: errors of unusable directories.
func testCheck(t *testing.T, b *bed) {
	ctx := within(t)
	if err := errors.Join(b.Write(ctx, b.dir("file"), strings.NewReader("x")), b.MakeDir(ctx, b.dir("full")),
		b.MakeDir(ctx, b.dir("private"))); err != nil {
		t.Fatal(err)
	}
	b.admin(t, "-setSpaceQuota", "1000", "/full")
	for _, tt := range []struct {
		name string
		r    remote
		dir  string
		want []string
	}{
		{"good", b.remote, b.dir("good/x"), nil},
		{"a file", b.remote, b.dir("file"), []string{"is a file", "/file"}},
		{"below a file", b.remote, b.dir("file/x"), []string{"/file"}},
		{"permission", b.as(t, "alice"), b.dir("private"), []string{"alice", "/private", "another --dir"}},
		{"quota", b.remote, b.dir("full"), []string{"quota", "/full", "remove files"}},
		{"no server", b.remote, "hdfs://" + b.Host + ":1/x", []string{"no call succeeded", ":1"}},
	} {
		err := spool.Check(ctx, tt.r, tt.dir)
		if len(tt.want) == 0 && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		t.Log(err)
		for _, w := range tt.want {
			if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: no %q in one line: %v", tt.name, w, err)
			}
		}
	}
	b.admin(t, "-safemode", "enter")
	if err := spool.Check(ctx, b.remote, b.dir("safe")); err == nil || !strings.Contains(err.Error(), "-safemode leave") {
		t.Errorf("safe mode: %v", err)
	}
	b.admin(t, "-safemode", "leave")
}
