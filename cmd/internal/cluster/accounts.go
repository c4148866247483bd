package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	lanesVariable = "SCRIP_LANES"
	// accountsFile is included by the configuration of the nodes. It depends on the number of lanes.
	accountsFile = "accounts.conf"
	// configFolder holds the configuration of the nodes where that is not the one of the compose file.
	configFolder = "nats-config"
)

// accounts lets the nodes load the accounts for the number of lanes of the scrip servers. Where the file beside the compose
// file is for another number, they get a copy of the configuration in the folder, with the accounts rendered for that number.
func accounts(folder string, services []Service) error {
	lanes := topology.MaxLanes + 1
	for _, s := range services {
		if text := s.Environment[lanesVariable]; s.Kind == Scrip && text != "" {
			var err error
			if lanes, err = strconv.Atoi(text); err != nil || lanes < 1 || lanes > topology.MaxLanes {
				return fmt.Errorf("%s is %q, expected a number from 1 to %d", lanesVariable, text, topology.MaxLanes)
			}
		}
	}
	if lanes > topology.MaxLanes {
		return nil // no server names a number
	}
	for _, s := range services {
		for inside, dir := range s.Mounts {
			have, err := os.ReadFile(filepath.Join(dir, accountsFile))
			if s.Kind != NATS || err != nil || bytes.Equal(have, []byte(natsauth.File(lanes))) {
				continue // no configuration, none with accounts, or the right one
			}
			own := filepath.Join(folder, configFolder)
			if err := copyConfig(own, dir, natsauth.File(lanes)); err != nil {
				return fmt.Errorf("the configuration of %s for %d lanes: %w", s.Name, lanes, err)
			}
			s.Mounts[inside] = own
		}
	}
	return nil
}

// copyConfig copies the configuration of the nodes, with these accounts. After a crash the next start does it again.
func copyConfig(to, from, accounts string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.conf"))
	if err == nil {
		err = os.MkdirAll(to, 0o711)
	}
	for _, file := range files {
		var text []byte
		if err == nil {
			text, err = os.ReadFile(file)
		}
		if filepath.Base(file) == accountsFile {
			text = []byte(accounts)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(file)), text, 0o600)
		}
	}
	return err
}
