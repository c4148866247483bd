package topology

import (
	"strings"
	"testing"
)

func TestCheckServer(t *testing.T) {
	for version, refused := range map[string]bool{"2.10.29": true, "1.9.0": true, "2.11.0": false, "2.15.2": false, "3.0.0": false, "2.15.2-beta.1": false, "": false, "dev": false} {
		err := CheckServer(version)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), version) {
			t.Errorf("%q: %v", version, err)
		}
	}
}
