package natsd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/golden"
)

// TestGolden: the marker of a store directory, as it is written and read.
func TestGolden(t *testing.T) {
	s := store{dir: t.TempDir(), marker: marker{Mode: modeCluster, Cluster: "scrip", Lanes: 4}}
	if err := s.write(); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(s.dir, markerFile))
	if err != nil {
		t.Fatal(err)
	}
	var read marker
	if err := json.Unmarshal(golden.Bytes(t, "marker.golden", written), &read); err != nil || read != s.marker {
		t.Errorf("the file holds %+v, %v", read, err)
	}
}
