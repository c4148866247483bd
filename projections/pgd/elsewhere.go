package pgd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// linkPlace makes <dataDir>/postgres a link to Options.Dir, which keeps the choice for later starts without the option. It
// refuses what would leave a cluster behind, or take another data directory's. A crash leaves an empty directory or the link.
func (c *Cluster) linkPlace(dataDir string) error {
	if c.opts.Dir == "" {
		return nil
	}
	dir, err := filepath.Abs(c.opts.Dir)
	if err != nil {
		return err
	}
	own := filepath.Join(dataDir, "postgres")
	at, err := os.Readlink(own)
	switch {
	case err == nil && at == dir:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the tables are in %s, not in %s: stop scrip and remove %[1]s, they are then filled from the log; or leave out --tables-dir", own, dir)
	}
	if err := atomicfile.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("making the directory of --tables-dir: %w", err)
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the directory of --tables-dir: %w", err)
	}
	for _, e := range there {
		if e.Name() != "lost+found" {
			return fmt.Errorf("--tables-dir %s has %s in it and is not of this data directory: give an empty directory", dir, e.Name())
		}
	}
	return os.Symlink(dir, own)
}
