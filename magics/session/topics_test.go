package session

import (
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/docs"
)

// TestTopics: the sections of docs/errors.md that errors of connections name exist.
func TestTopics(t *testing.T) {
	t.Parallel()
	for fate, topic := range topics {
		if !slices.Contains(docs.Topics(), topic) {
			t.Errorf("%v: docs/errors.md has no section %s", fate, topic)
		}
	}
}
