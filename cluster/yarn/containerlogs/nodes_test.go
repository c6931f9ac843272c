package containerlogs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestNodeFailures: an error of a node, or of HDFS for a running application, is returned if nothing was read, and
// emitted after the lines if some were.
func TestNodeFailures(t *testing.T) {
	t.Parallel()
	absent := fmt.Errorf("list: %w", fs.ErrNotExist)
	const good = "Container: c on n7:8041\nLogLength:4\nLogContents:\none\n"
	for _, tt := range []struct {
		name           string
		status         int // of stdout; 0: the connection is cut after it
		stdout         string
		good, running  bool
		hdfs           error
		noted, refused string
		lines          int
	}{
		{"not found", http.StatusNotFound, "", false, true, absent, "", "", 0},
		{"redirected", http.StatusTemporaryRedirect, "", false, true, absent, "", "", 0},
		{"forbidden", http.StatusForbidden, "", false, true, absent, "", "answers 403 forbidden", 0},
		{"all good", http.StatusOK, good, true, true, absent, "", "", 3},
		{
			"broken after others", http.StatusInternalServerError, "", true, true, absent,
			"answers 500 internal server error", "", 2,
		},
		{
			"broken after others of an ended application", http.StatusInternalServerError, "", true, false, absent,
			"answers 500 internal server error", "", 2,
		},
		{
			"cut", 0, "Container: c on n7:8041\nLogLength:80\nLogContents:\none\n", false, true, absent, "unexpected EOF", "", 1,
		},
		{"no HDFS after others", http.StatusOK, good, true, true, errors.New("HDFS unreachable"), "HDFS unreachable", "", 3},
		{"no HDFS", http.StatusNotFound, "", false, true, errors.New("HDFS unreachable"), "", "HDFS unreachable", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				switch last := strings.HasSuffix(q.URL.Path, "/stdout"); {
				case !last && tt.good:
					fmt.Fprint(w, good)
				case last && tt.status == 0:
					fmt.Fprint(w, tt.stdout)
					_ = http.NewResponseController(w).Flush() // the client reads until it is cut
					panic(http.ErrAbortHandler)
				case tt.status == 0:
					w.WriteHeader(http.StatusNotFound)
				default:
					w.WriteHeader(tt.status)
					fmt.Fprint(w, tt.stdout)
				}
			}))
			defer node.Close()
			r := testReader(nil, nil)
			var headings []string
			lines := 0
			r.web, r.seen = &http.Client{CheckRedirect: noRedirect, Transport: node.Client().Transport}, map[string]bool{}
			r.emit = func(heading string, some []*clusterpb.Line) error {
				headings, lines = append(headings, heading), lines+len(some)
				return nil
			}
			err := r.fromNodes(t.Context(),
				[]Location{{Container: "container_17_12345_01_000002", Web: strings.TrimPrefix(node.URL, "http://")}})
			if err == nil {
				err = r.conclude(tt.running, tt.hdfs)
			}
			if (err == nil) != (tt.refused == "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("the error is %v, want %q", err, tt.refused)
			}
			got := strings.Join(headings, "\n")
			if strings.Contains(got, "the rest of the logs of application_17_12345 could not be read: ") != (tt.noted != "") ||
				!strings.Contains(got, tt.noted) {
				t.Errorf("the headings are %q, want %q", headings, tt.noted)
			}
			if lines != tt.lines {
				t.Errorf("%d lines, want %d", lines, tt.lines)
			}
		})
	}
}

// TestUnreachableNode: what an unreachable node did not deliver counts for each of its containers that HDFS lacks.
func TestUnreachableNode(t *testing.T) {
	t.Parallel()
	node := httptest.NewServer(http.NotFoundHandler())
	web := strings.TrimPrefix(node.URL, "http://")
	node.Close()
	r := testReader(nil, nil)
	r.web, r.seen = &http.Client{}, map[string]bool{}
	if err := r.fromNodes(t.Context(),
		[]Location{{Container: "container_1", Web: web}, {Container: "container_2", Web: web}}); err != nil {
		t.Fatal(err)
	}
	r.seen["container_1"] = true // read from HDFS
	if err := r.nodeError(); err == nil ||
		!strings.Contains(err.Error(), "the NodeManager's web server "+web+": dial tcp") {
		t.Errorf("the error is %v", err)
	}
	r.seen["container_2"] = true
	if err := r.nodeError(); err != nil {
		t.Errorf("HDFS has all: %v", err)
	}
}
