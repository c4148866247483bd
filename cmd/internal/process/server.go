package process

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// readyLimit is far longer than a start, one or two seconds, for machines under load.
	readyLimit = 3 * time.Minute
	readyEvery = 10 * time.Millisecond
)

// Descriptor is the content of <data>/scrip.json.
type Descriptor struct {
	PID         int    `json:"pid"`
	NATSURL     string `json:"nats_url"`
	HTTPURL     string `json:"http_url"`
	PostgresURL string `json:"postgres_url"`
	Lanes       int    `json:"lanes"`
	Sync        string `json:"sync"`
}

// Server is a `scrip serve` that was started.
type Server struct {
	*Process
	Data string // its data directory
}

// Serve starts a command that serves on a data directory.
func Serve(c Command, data string) (*Server, error) {
	p, err := Start(c)
	if err != nil {
		return nil, err
	}
	return &Server{Process: p, Data: data}, nil
}

// Ready waits until the server has written its addresses, or has ended.
func (s *Server) Ready() (Descriptor, error) {
	deadline := time.NewTimer(readyLimit)
	defer deadline.Stop()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		d, err := s.Descriptor()
		if err == nil && d.PID == s.PID() {
			return d, nil
		}
		select {
		case <-s.Gone():
			return d, fmt.Errorf("the server ended before it was ready: %s", s.Ended())
		case <-deadline.C:
			return d, fmt.Errorf("the server is not ready after %s: %w", readyLimit, err)
		case <-tick.C:
		}
	}
}

// Descriptor reads the addresses in the data directory: those of this server, or of an earlier one that was killed.
func (s *Server) Descriptor() (Descriptor, error) {
	var d Descriptor
	raw, err := os.ReadFile(filepath.Join(s.Data, "scrip.json"))
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(raw, &d)
}
