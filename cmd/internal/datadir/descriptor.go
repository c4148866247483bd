package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/certs"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// Descriptor is the content of scrip.json: the addresses of a running server, and how clients on its machine check whom they reach
// there. The URL of PostgreSQL has its own parameters for that.
type Descriptor struct {
	PID int `json:"pid"`
	// NATSURL includes credentials.
	NATSURL string `json:"nats_url"`
	// HTTPURL includes credentials.
	HTTPURL string `json:"http_url"`
	// PostgresURL includes credentials of the owner of schema scrip. Empty if the server has none.
	PostgresURL string `json:"postgres_url,omitempty"`
	Lanes       int    `json:"lanes"`
	// NATSCert and HTTPCert are the absolute paths of the server's own certificate, the only one that clients accept there, whatever
	// its name is; "" = there is no TLS, or NATS is external.
	NATSCert string `json:"nats_cert,omitempty"`
	HTTPCert string `json:"http_cert,omitempty"`
	// NATSCA is the absolute path of the certificates that sign that of an external NATS; "" = those of the system.
	NATSCA string `json:"nats_ca,omitempty"`
	// Sync is "always", or "interval", which may lose the last seconds on power loss. Empty with an external NATS.
	Sync string `json:"sync,omitempty"`
}

// Publish writes the descriptor, by which clients find the server.
func (d *Dir) Publish(desc Descriptor) error {
	if err := d.Held(); err != nil {
		return err
	}
	raw, err := json.Marshal(desc)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(d.file(descriptor), append(raw, '\n'), ownerOnly); err != nil {
		return fmt.Errorf("writing the server's addresses: %w", err)
	}
	return nil
}

// Withdraw removes the descriptor.
func (d *Dir) Withdraw() error {
	if err := d.Held(); err != nil {
		return err // the one that is there belongs to another server
	}
	return atomicfile.Remove(d.file(descriptor))
}

// Alive is true if the process that wrote the descriptor may still run.
func (d Descriptor) Alive() bool {
	return d.PID > 0 && !errors.Is(syscall.Kill(d.PID, 0), syscall.ESRCH)
}

// Find reads the descriptor in a data directory. Its error is fs.ErrNotExist if there is none.
func Find(dir string) (Descriptor, error) {
	path := filepath.Join(dir, descriptor)
	raw, err := os.ReadFile(path)
	if err != nil {
		return Descriptor{}, err
	}
	var desc Descriptor
	if err := json.Unmarshal(raw, &desc); err != nil || desc.NATSURL == "" {
		return Descriptor{}, fmt.Errorf("%s is not a descriptor of a server (%w); restart the server", path, errors.Join(err, errors.New("no nats_url")))
	}
	return desc, nil
}

// Locate finds a client's server: nats, as given by --nats, or else the descriptor in the data directory dir. Its errors
// name the next step.
func Locate(nats, dir string) (Descriptor, error) {
	if nats != "" {
		return Descriptor{NATSURL: nats}, nil
	}
	server, err := Find(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return server, fmt.Errorf("no server runs on the data directory %s; start one with `scrip serve`, or name one with --data DIR or --nats URL", dir)
	case errors.Is(err, fs.ErrPermission):
		name := "this user"
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
		return server, fmt.Errorf("%s may not read the server's address and credentials (%w); run this as the server's user, or name the server with --nats nats://USER:PASSWORD@HOST:PORT", name, err)
	case err != nil:
		return server, err
	case !server.Alive():
		return server, fmt.Errorf("the server on %s has crashed or was killed (process %d); start it again with `scrip serve`", dir, server.PID)
	}
	return server, nil
}

// CheckNATS is the last option of a connection to NATSURL: unless one before it, from a flag, has the configuration of TLS, it is
// as the descriptor names it.
func (d Descriptor) CheckNATS() nats.Option {
	return func(o *nats.Options) error {
		switch {
		case o.TLSConfig != nil:
			return nil
		case d.NATSCert != "":
			return nats.Secure(certs.OfFile(d.NATSCert))(o)
		case d.NATSCA != "":
			config, err := certs.SignedBy(d.NATSCA)
			if err != nil {
				return fmt.Errorf("the CA of NATS: %w; restart the server, or give another one with --nats-ca", err)
			}
			return nats.Secure(config)(o)
		}
		return nil
	}
}

// HTTPClient is a client of HTTPURL.
func (d Descriptor) HTTPClient() *http.Client {
	if d.HTTPCert == "" {
		return http.DefaultClient
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: certs.OfFile(d.HTTPCert)}}
}

// connectWait is how long connecting to a server may take.
const connectWait = 5 * time.Second

// Connect connects a program of that name to the server. dir is its data directory, with which the error names the next step.
func (d *Descriptor) Connect(dir, name string, given ...nats.Option) (*nats.Conn, error) {
	opts := append(append(append(natsx.Options(name), nats.Timeout(connectWait)), given...), d.CheckNATS())
	all := natsx.Keyed(d.NATSURL, opts...)
	nc, err := nats.Connect(d.NATSURL, all...)
	if err == nil {
		return nc, nil
	}
	hint, keyed := "is `scrip serve` running there?", len(all) > len(opts)
	switch {
	case strings.Contains(err.Error(), "got 'PING'"): // of a server that has not answered the log-in
		return nil, errors.New("connecting to the server: the log-in is not answered: the credentials are not in force and too many such " +
			"log-ins came from this address, or no server of scrip answers log-ins there; `scrip doctor --as KEY` on the machine of a server looks a key up")
	case errors.Is(err, nats.ErrAuthorization) && keyed:
		hint = "the key is mistyped or revoked; `scrip doctor --as KEY` on the machine of a server tells which"
	case errors.Is(err, nats.ErrAuthorization):
		hint = "the credentials are in the file credentials in its data directory, readable by the server's user"
		if path := CredentialsPath(dir); path != "" {
			hint = "the credentials of the server on this data directory are in " + path + ", readable by the server's user"
		}
		hint += "; as that user omit --nats, or give them in the URL: nats://USER:PASSWORD@HOST:PORT"
	}
	return nil, fmt.Errorf("connecting to the server: %w; %s", err, hint)
}
