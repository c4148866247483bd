package settings

import (
	"time"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// attempt bounds an exchange with the server: a request sent during an election is never answered.
const attempt = 2 * time.Second

// bucket is the bucket of the history.
func (s *Store) bucket() changelog.Bucket {
	return changelog.Bucket{JS: s.js, Spec: topology.Settings, Logger: s.opts.Logger}
}
