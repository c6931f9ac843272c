package session

import (
	"testing"

	"github.com/tfcluster/tfcluster/docs"
)

// TestTopics: the sections of docs/errors.md that the errors of connections name exist.
func TestTopics(t *testing.T) {
	t.Parallel()
	for fate, topic := range topics {
		if _, ok := docs.Topic(topic); !ok {
			t.Errorf("%v: docs/errors.md has no section %s", fate, topic)
		}
	}
}
