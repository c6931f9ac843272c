package feeding

import (
	"context"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/bridge"
)

// TestForgotten: Python forgets the data when its description was interrupted, came too late or failed.
func TestForgotten(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{
		context.Canceled, context.DeadlineExceeded, &bridge.PythonError{Name: "ValueError", Text: "no"},
	} {
		py := &notebook{fails: cause}
		if _, err := Open(t.Context(), py, newDriver(), Request{Data: "df"}, func(string) {}); err == nil ||
			py.called("feed_end") != 1 {
			t.Errorf("%v: opened with %v, Python was called %v", cause, err, py.calls)
		}
	}
}

// TestPredictions: records without a result are an error.
func TestPredictions(t *testing.T) {
	t.Parallel()
	d, py := newDriver(), &notebook{}
	d.updates <- opened(1)
	f, err := Open(t.Context(), py, d, Request{Data: "df"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Predictions(t.Context(), ""); err == nil ||
		!strings.Contains(err.Error(), "before every record had a result") {
		t.Errorf("the error is %v", err)
	}
}

// TestDetached: a cluster has one detached feed, and the feed belongs to one run.
func TestDetached(t *testing.T) {
	t.Parallel()
	var kept Detached
	if kept.Of("c", 1) != nil {
		t.Error("there is a feed before one is kept")
	}
	first, second := &Client{open: &clusterpb.FeedOpen{Run: 1}}, &Client{open: &clusterpb.FeedOpen{Run: 2}}
	kept.Keep("c", first)
	kept.Keep("c", second)
	kept.Drop(first)
	if kept.Of("c", 1) != nil || kept.Of("c", 2) != second || kept.Of("d", 2) != nil {
		t.Errorf("the feeds are %v", kept.feeds)
	}
	kept.Drop(second)
	if kept.Of("c", 2) != nil {
		t.Error("the feed was not dropped")
	}
}
