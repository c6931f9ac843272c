package sparktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// State is the cluster's state in the master's JSON page.
type State struct {
	// Workers are the registered workers, including lost ones.
	Workers []Worker `json:"workers"`
	// Active are the applications that have not ended.
	Active []Application `json:"activeapps"`
	// Completed are the applications that have ended; the master keeps the newest 200.
	Completed []Application `json:"completedapps"`
}

// Worker is a worker's state; memory is in MiB.
type Worker struct {
	ID         string `json:"id"`
	Host       string `json:"host"`
	State      string `json:"state"` // ALIVE, DEAD
	Cores      int    `json:"cores"`
	CoresUsed  int    `json:"coresused"`
	Memory     int    `json:"memory"`
	MemoryUsed int    `json:"memoryused"`
}

// Application is an application's state.
type Application struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"` // WAITING, RUNNING
	Cores int    `json:"cores"`
}

// Alive returns the workers that the master can use.
func (s State) Alive() []Worker {
	var ws []Worker
	for _, w := range s.Workers {
		if w.State == "ALIVE" {
			ws = append(ws, w)
		}
	}
	return ws
}

// State queries the master.
func (c *Cluster) State() (State, error) {
	client := http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	r, err := client.Get(c.UI + "/json/")
	if err != nil {
		return State{}, fmt.Errorf("query the Spark master: %w", err)
	}
	defer r.Body.Close()
	var s State
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		return State{}, fmt.Errorf("read the Spark master's answer (%s): %w", r.Status, err)
	}
	return s, nil
}
