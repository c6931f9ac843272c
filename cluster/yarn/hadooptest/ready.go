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

// client returns a client for the daemons' HTTP interfaces. Requests to a daemon that hangs are repeated.
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

// nameNodeBean is the NameNode's state.
type nameNodeBean struct {
	Beans []struct {
		FSState          string
		NumLiveDataNodes int
	} `json:"beans"`
}

func (c *Cluster) nameNode() (nameNodeBean, error) {
	var b nameNodeBean
	err := get(fmt.Sprintf("http://%s:%d/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState", c.Host,
		nameNodeHTTPPort), &b)
	if err == nil && len(b.Beans) == 0 {
		err = errors.New("the NameNode has no namesystem yet")
	}
	return b, err
}

// nameNodeReady does not wait for the end of safe mode, for which a DataNode is needed.
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

// AwaitHDFS waits until the NameNode has its DataNode and has left safe mode, for example after a restart.
func (c *Cluster) AwaitHDFS() {
	c.t.Helper()
	if err := c.NameNode.await(c.dataNodeReady); err != nil {
		c.t.Fatal(err)
	}
}

// web returns a URL of the ResourceManager's REST interface.
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

// nodeReady returns nil if the ResourceManager reports the node as RUNNING.
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

// NodeID returns the ResourceManager's name for a NodeManager.
func (c *Cluster) NodeID(i int) string { return fmt.Sprintf("%s:%d", c.nodeHost(i), nodePort) }

// label sets the labels of the nodes.
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
		body := fmt.Sprintf(
			"<nodeToLabelsName><nodeToLabels><nodeId>%s</nodeId><labels>%s</labels></nodeToLabels></nodeToLabelsName>",
			c.NodeID(i), escape(l))
		if err := c.post("replace-node-to-labels", body); err != nil {
			return fmt.Errorf("label node %d: %w", i, err)
		}
	}
	return nil
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer's Write does not fail
	return b.String()
}

func (c *Cluster) post(path, body string) error {
	patient := client()
	patient.Timeout = time.Minute // nobody repeats this request
	resp, err := patient.Post(c.web(path)+"?user.name="+userName(), "application/xml", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body) // a partial body is enough for the message
		return fmt.Errorf("%s: %s", resp.Status, b)
	}
	return nil
}
