package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// Descriptor tells where a running server is to be found.
type Descriptor struct {
	PID int `json:"pid"`
	// NATSURL is complete, credentials included.
	NATSURL string `json:"nats_url"`
	// HTTPURL is complete, credentials included.
	HTTPURL string `json:"http_url"`
	// PostgresURL is complete: who reads it can connect as owner of schema scrip. Empty where the server knows none.
	PostgresURL string `json:"postgres_url,omitempty"`
	Lanes       int    `json:"lanes"`
	// Sync is "always", or "interval", which may lose the last seconds on power loss. Empty where an external NATS
	// decides.
	Sync string `json:"sync,omitempty"`
}

// Publish writes the descriptor; clients find the server from then on.
func (d *Dir) Publish(desc Descriptor) error {
	raw, err := json.Marshal(desc)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(d.file(descriptor), append(raw, '\n'), ownerOnly); err != nil {
		return fmt.Errorf("publishing where the server is: %w", err)
	}
	return nil
}

// Withdraw removes the descriptor.
func (d *Dir) Withdraw() error { return atomicfile.Remove(d.file(descriptor)) }

// Alive says whether the process that wrote the descriptor may still run.
func (d Descriptor) Alive() bool {
	return d.PID > 0 && !errors.Is(syscall.Kill(d.PID, 0), syscall.ESRCH)
}

// Find reads the descriptor in a data directory. Its errors are fs.ErrNotExist where there is none.
func Find(dir string) (Descriptor, error) {
	path := filepath.Join(dir, descriptor)
	raw, err := os.ReadFile(path)
	if err != nil {
		return Descriptor{}, err
	}
	var desc Descriptor
	if err := json.Unmarshal(raw, &desc); err != nil || desc.NATSURL == "" {
		return Descriptor{}, fmt.Errorf("%s is not what a server writes there (%w); restart the server", path, errors.Join(err, errors.New("no nats_url")))
	}
	return desc, nil
}
