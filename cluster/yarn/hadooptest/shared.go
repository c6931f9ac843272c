package hadooptest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/internal/atomicfile"
)

// SharedVar is the environment variable that names the file in which Save has described a running Hadoop.
const SharedVar = "TFCLUSTER_TEST_YARN"

// description is what other processes must know of a running Hadoop.
type description struct {
	Conf, Host, Dir, Network string
	Options                  Options
}

// Shared returns the Hadoop that the tests of all packages share: the one that $TFCLUSTER_TEST_YARN describes, or
// a new one that ends with t. It has HDFS and two NodeManagers. Tests must neither stop its daemons nor change its
// settings; the fields for its daemons are nil if another process has started them.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	path := os.Getenv(SharedVar)
	if path == "" {
		return StartShared(t)
	}
	if testing.Short() {
		t.Skip("short: needs Hadoop")
	}
	var d description
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil {
		t.Fatalf("read where Hadoop is: %v", err)
	}
	return &Cluster{Conf: d.Conf, Host: d.Host, t: t, options: d.Options, jars: Jars(t), dir: d.Dir, network: d.Network}
}

// StartShared starts the Hadoop of Shared. When t ends, it fails t if an application has not ended or has left files.
func StartShared(t testing.TB) *Cluster {
	t.Helper()
	memory := strconv.Itoa(8 * nodeMemory) // packages are tested side by side
	c := Start(t, Options{
		HDFS: true, NodeManagers: 2,
		MasterExpiry: 5 * time.Minute, // a master may be away for a minute before its tasks are stopped
		Site: map[string]string{
			"yarn.nodemanager.resource.memory-mb": memory, "yarn.scheduler.maximum-allocation-mb": memory,
			"yarn.nodemanager.resource.cpu-vcores": "64",
		},
	})
	t.Cleanup(c.checkApplications)
	return c
}

// Save describes the Hadoop in a file, for Shared in other processes.
func (c *Cluster) Save(path string) error {
	b, err := json.Marshal(description{c.Conf, c.Host, c.dir, c.network, c.options})
	if err != nil {
		return err
	}
	return atomicfile.Write(path, b)
}

// Environments returns the folder in which the agents in containers unpack shipped environments.
func (c *Cluster) Environments() string { return filepath.Join(c.dir, "environments") }

// applicationsLimit is how long applications may take to end after the tests.
const applicationsLimit = time.Minute

// checkApplications fails the test if an application has not ended, or its folder on HDFS is not removed.
func (c *Cluster) checkApplications() {
	var left []string
	var err error
	for end := time.Now().Add(applicationsLimit); ; time.Sleep(100 * time.Millisecond) {
		left, err = c.leftApplications()
		if err == nil && len(left) == 0 {
			return
		}
		if c.t.Failed() || time.Now().After(end) {
			break
		}
	}
	c.t.Errorf("left of the tests' applications: %s (%v)", strings.Join(left, ", "), err)
}

// leftApplications returns the applications that have not ended, and the folders of applications on HDFS.
func (c *Cluster) leftApplications() (left []string, err error) {
	var running struct {
		Apps struct {
			App []struct{ ID, Name, State string }
		}
	}
	if err := get(c.web("apps?states=NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"), &running); err != nil {
		return nil, err
	}
	for _, a := range running.Apps.App {
		left = append(left, fmt.Sprintf("%s (%s) is %s", a.ID, a.Name, a.State))
	}
	var folders struct {
		FileStatuses struct {
			FileStatus []struct{ PathSuffix string }
		}
	}
	list := fmt.Sprintf("http://%s:%d/webhdfs/v1/user/%s/.tfcluster/applications?op=LISTSTATUS&user.name=%s", c.Host,
		nameNodeHTTPPort, userName(), userName())
	resp, err := client().Get(list)
	if err != nil {
		return left, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound { // no application had files
		return left, nil
	}
	if err := json.NewDecoder(resp.Body).Decode(&folders); err != nil {
		return left, fmt.Errorf("list the folders of applications (%s): %w", resp.Status, err)
	}
	for _, f := range folders.FileStatuses.FileStatus {
		left = append(left, f.PathSuffix+" on HDFS")
	}
	slices.Sort(left)
	return left, nil
}
