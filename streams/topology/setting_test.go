package topology

import (
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// A setting that a newer nats.go has must be classed: whether it can remove messages, or keep new ones out.
func TestEverySettingIsClassed(t *testing.T) {
	config, found := reflect.TypeFor[jetstream.StreamConfig](), map[string]bool{}
	for i := range config.NumField() {
		name, _, _ := strings.Cut(config.Field(i).Tag.Get("json"), ",")
		if _, classed := endangering[name]; !classed {
			t.Errorf("setting %s is not in the list: can it remove messages, replace them, or keep new ones out?", name)
		}
		found[name] = true
	}
	for name := range endangering {
		if !found[name] {
			t.Errorf("there is no setting %s", name)
		}
	}
}

func TestWhatACopyLacks(t *testing.T) {
	for _, c := range []struct {
		peer      jetstream.PeerInfo
		meanwhile uint64
		want      uint64
	}{
		{jetstream.PeerInfo{Current: true}, 0, 0},
		{jetstream.PeerInfo{Current: true, Lag: 3}, 9, 0},
		{jetstream.PeerInfo{Lag: 9}, 9, 0},   // it has all that was there a moment ago
		{jetstream.PeerInfo{Lag: 10}, 9, 10}, // it has not
		{jetstream.PeerInfo{}, 9, 1},         // how far it is is not known
		{jetstream.PeerInfo{Offline: true, Current: true}, 0, 1},
		{jetstream.PeerInfo{Offline: true, Lag: 1966}, 5000, 1966},
	} {
		if got := lacking(&c.peer, c.meanwhile); got != c.want {
			t.Errorf("%+v, %d messages meanwhile: %d, want %d", c.peer, c.meanwhile, got, c.want)
		}
	}
}
