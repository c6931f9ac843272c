package sparktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// State is what the master shows of the cluster.
type State struct {
	// Workers are those that have registered, also those that are lost since.
	Workers []Worker `json:"workers"`
	// Active are the applications that have not ended.
	Active []Application `json:"activeapps"`
	// Completed are those that have, of whom the master keeps the newest 200.
	Completed []Application `json:"completedapps"`
}

// Worker is a worker as the master sees it; memory is in MiB.
type Worker struct {
	ID         string `json:"id"`
	Host       string `json:"host"`
	State      string `json:"state"` // ALIVE, DEAD
	Cores      int    `json:"cores"`
	CoresUsed  int    `json:"coresused"`
	Memory     int    `json:"memory"`
	MemoryUsed int    `json:"memoryused"`
}

// Application is an application as the master sees it.
type Application struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"` // WAITING, RUNNING
	Cores int    `json:"cores"`
}

// Alive are the workers that the master can use.
func (s State) Alive() []Worker {
	var ws []Worker
	for _, w := range s.Workers {
		if w.State == "ALIVE" {
			ws = append(ws, w)
		}
	}
	return ws
}

// State asks the master how the cluster stands.
func (c *Cluster) State() (State, error) {
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	r, err := client.Get(c.UI + "/json/")
	if err != nil {
		return State{}, fmt.Errorf("ask the Spark master: %w", err)
	}
	defer r.Body.Close()
	var s State
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		return State{}, fmt.Errorf("read the Spark master's answer (%s): %w", r.Status, err)
	}
	return s, nil
}
