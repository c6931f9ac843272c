package hadooptest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// client asks daemons over HTTP; one that hangs is asked again.
func client() *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
}

func get(url string, into any) error {
	resp, err := client().Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// nameNodeBean is what the NameNode says of itself.
type nameNodeBean struct {
	Beans []struct {
		FSState          string
		NumLiveDataNodes int
	} `json:"beans"`
}

func (c *Cluster) nameNode() (nameNodeBean, error) {
	var b nameNodeBean
	err := get(fmt.Sprintf("http://%s:%d/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState", c.Host, nameNodeHTTPPort), &b)
	if err == nil && len(b.Beans) == 0 {
		err = errors.New("the NameNode has no namesystem yet")
	}
	return b, err
}

// nameNodeReady does not wait for safe mode to end, which takes a DataNode.
func (c *Cluster) nameNodeReady() error {
	_, err := c.nameNode()
	return err
}

func (c *Cluster) dataNodeReady() error {
	b, err := c.nameNode()
	if err != nil {
		return err
	}
	if s := b.Beans[0]; s.NumLiveDataNodes != 1 || s.FSState != "Operational" {
		return fmt.Errorf("the NameNode is %s with %d DataNodes", s.FSState, s.NumLiveDataNodes)
	}
	return nil
}

// AwaitHDFS waits until the NameNode is out of safe mode with its DataNode, as after a
// restart.
func (c *Cluster) AwaitHDFS() {
	c.t.Helper()
	if err := c.NameNode.await(c.dataNodeReady); err != nil {
		c.t.Fatal(err)
	}
}

// web is a URL of the ResourceManager's REST interface.
func (c *Cluster) web(path string) string {
	return fmt.Sprintf("http://%s:%d/ws/v1/cluster/%s", c.Host, managerHTTPPort, path)
}

func (c *Cluster) managerReady() error {
	var info struct {
		ClusterInfo struct {
			State string `json:"state"`
		} `json:"clusterInfo"`
	}
	if err := get(c.web("info"), &info); err != nil {
		return err
	}
	if info.ClusterInfo.State != "STARTED" {
		return fmt.Errorf("the ResourceManager is %s", info.ClusterInfo.State)
	}
	for _, port := range []int{schedulerPort, managerPort} { // they are opened last
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", c.Host, port), time.Second)
		if err != nil {
			return err
		}
		conn.Close()
	}
	return nil
}

// nodeReady asks the ResourceManager, which says RUNNING of the nodes it would use.
func (c *Cluster) nodeReady(i int) error {
	var nodes struct {
		Nodes struct {
			Node []struct {
				ID    string `json:"id"`
				State string `json:"state"`
			} `json:"node"`
		} `json:"nodes"`
	}
	if err := get(c.web("nodes"), &nodes); err != nil {
		return err
	}
	for _, n := range nodes.Nodes.Node {
		if n.ID == c.NodeID(i) && n.State == "RUNNING" {
			return nil
		}
	}
	return fmt.Errorf("the ResourceManager does not know %s: %v", c.NodeID(i), nodes)
}

// NodeID is how the ResourceManager names a NodeManager.
func (c *Cluster) NodeID(i int) string { return fmt.Sprintf("%s:%d", c.nodeHost(i), nodePort) }

// label gives the NodeManagers their labels.
func (c *Cluster) label() error {
	if len(c.options.Labels) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("<nodeLabelsInfo>")
	for _, l := range c.labels() {
		fmt.Fprintf(&b, "<nodeLabelInfo><name>%s</name><exclusivity>true</exclusivity></nodeLabelInfo>", escape(l))
	}
	b.WriteString("</nodeLabelsInfo>")
	if err := c.post("add-node-labels", b.String()); err != nil {
		return fmt.Errorf("add node labels: %w", err)
	}
	for i, l := range c.options.Labels {
		if l == "" {
			continue
		}
		body := fmt.Sprintf("<nodeToLabelsName><nodeToLabels><nodeId>%s</nodeId><labels>%s</labels></nodeToLabels></nodeToLabelsName>", c.NodeID(i), escape(l))
		if err := c.post("replace-node-to-labels", body); err != nil {
			return fmt.Errorf("label node %d: %w", i, err)
		}
	}
	return nil
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}

func (c *Cluster) post(path, body string) error {
	resp, err := client().Post(c.web(path)+"?user.name="+userName(), "application/xml", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body) // as much as there is
		return fmt.Errorf("%s: %s", resp.Status, b)
	}
	return nil
}
