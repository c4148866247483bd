package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// answerWait is how long a server may take for one answer.
const answerWait = 5 * time.Second

const syncFix = "set jetstream { sync_interval: always } on every node and restart them one by one"

// natsURL is the NATS server to examine, "" if there is none yet: the embedded one of a server that does not run.
func (v *visit) natsURL() string { return cmp.Or(v.NATS, ifRunning(v, v.server.NATSURL)) }

func ifRunning(v *visit, url string) string {
	if v.running {
		return url
	}
	return ""
}

// connect connects as scrip's servers do, once, without retries.
func (v *visit) connect(list string) (*nats.Conn, error) { return v.connectAs(list, v.NATSOptions...) }

// connectAs connects as the user in the URLs, or of the options.
func (v *visit) connectAs(list string, opts ...nats.Option) (*nats.Conn, error) {
	given := nats.GetDefaultOptions()
	for _, set := range v.NATSOptions {
		if err := set(&given); err != nil {
			return nil, err
		}
	}
	all := append(slices.Clone(opts), nats.Name("scrip doctor"), nats.Timeout(answerWait), nats.NoReconnect())
	switch {
	case given.TLSConfig != nil:
		all = append(all, nats.Secure(given.TLSConfig))
	case v.NATS == "" && v.running:
		all = append(all, v.server.CheckNATS())
	}
	return nats.Connect(list, natsx.Keyed(list, all...)...)
}

func (v *visit) nats(ctx context.Context) (all []Finding) {
	address := v.natsURL()
	if address == "" {
		return good("embedded in scrip, version %s; it runs with the server", natsd.Version)
	}
	nc, err := v.connect(address)
	if err != nil {
		fix := "start it, or give another URL with --nats"
		if errors.Is(err, nats.ErrAuthorization) {
			fix = "give the credentials of scrip's servers in the URL: nats://USER:PASSWORD@HOST:PORT"
		}
		return bad(Fail, fix, "connecting to %s: %v", natsx.WithoutUser(address), err)
	}
	defer nc.Close()
	version := nc.ConnectedServerVersion()
	switch {
	case topology.CheckServer(version) != nil:
		all = append(all, bad(Fail, "upgrade it", "%v", topology.CheckServer(version))...)
	case !strings.HasPrefix(version, topology.TestedServer+"."):
		all = append(all, bad(Warn, "use the version that scrip is tested with", "version %s; scrip is tested with %s", version, topology.TestedServer)...)
	default:
		all = append(all, good("version %s at %s", version, natsx.WithoutUser(nc.ConnectedUrl()))...)
	}
	all = append(all, graded(least(uint64(nc.MaxPayload()), bound[uint64]{topology.MinMaxPayload, topology.MinMaxPayload}), "set max_payload: 1MB or more in its configuration",
		"max_payload is %d bytes, the log needs %d", nc.MaxPayload(), topology.MinMaxPayload)...)
	all = append(all, v.sync(ctx)...)
	return append(all, v.log(ctx, nc)...)
}

// sync is whether answers wait for the disk. NATS shows its setting only on its monitoring port.
func (v *visit) sync(ctx context.Context) []Finding {
	switch {
	case v.Monitor != "":
	case v.NATS != "" || v.server.Sync == "":
		return bad(Warn, "run it on the machine of each node with --monitor http://127.0.0.1:8222, the monitoring port; or look at the configuration of every node",
			"whether it has sync_interval: always cannot be read from here; without it a power loss loses commands that were answered up to two minutes before")
	case v.server.Sync == natsd.SyncAlways:
		return good("sync_interval is always")
	default:
		return bad(Fail, "start scrip without --sync", "the server runs with --sync %s: a power loss loses the last seconds", v.server.Sync)
	}
	ctx, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	var all []Finding
	for one := range strings.SplitSeq(v.Monitor, ",") {
		var seen struct {
			Name      string `json:"server_name"`
			JetStream struct {
				Config *struct {
					Always bool          `json:"sync_always"`
					Every  time.Duration `json:"sync_interval"`
				} `json:"config"`
			} `json:"jetstream"`
		}
		err := get(ctx, strings.TrimSuffix(one, "/")+"/varz", &seen)
		switch config := seen.JetStream.Config; {
		case err != nil:
			all = append(all, bad(Warn, "give the address of its monitoring port with --monitor", "reading its settings: %v", err)...)
		case config == nil:
			all = append(all, bad(Fail, "add jetstream { store_dir: …, sync_interval: always } to its configuration", "%s has no JetStream", seen.Name)...)
		case !config.Always:
			all = append(all, bad(Fail, syncFix, "%s syncs every %s: a power loss loses what was answered since", seen.Name, config.Every)...)
		default:
			all = append(all, good("%s: sync_interval is always", seen.Name)...)
		}
	}
	return all
}

func get(ctx context.Context, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// log examines the log: that there is JetStream, that streams have their settings and their copies, and that none lags.
func (v *visit) log(ctx context.Context, nc *nats.Conn) (all []Finding) {
	ctx, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return bad(Fail, "report this", "%v", err)
	}
	log, found, err := topology.Inspect(ctx, js)
	if err != nil {
		return bad(Fail, "enable JetStream on the server, or give credentials of an account that has it", "looking for the log: %v", err)
	}
	nodes := len(nc.DiscoveredServers())
	if !found {
		if nodes > 1 {
			return good("a cluster of %d nodes or more without a log; create it with `scrip serve --replicas 3`", nodes)
		}
		return good("JetStream is enabled; there is no log yet")
	}
	now, err := log.Condition(ctx, js)
	if err != nil {
		return append(all, bad(Fail, "see `scrip status`", "reading the log's streams: %v", err)...)
	}
	for _, d := range now.Dangers() {
		all = append(all, bad(Fail, "put the setting back at once (nats stream edit), and restore a backup if messages are gone", "the log is in danger: %s", d)...)
	}
	for _, d := range now.Differences() {
		all = append(all, bad(Warn, "put the setting back", "%s", d)...)
	}
	for _, node := range now.Behind() {
		all = append(all, bad(Warn, "start or restart that nats-server, after a look at its log and disk", "copies of the log on %s lack %d messages", node, now.Lag[node])...)
	}
	switch {
	case now.Copies < 3 && nodes >= 3:
		all = append(all, bad(Warn, "restore a backup with `scrip restore DIR --nats URL --replicas 3`", "copies of each stream: %d, on a cluster of %d nodes; the loss of one may lose the log", now.Copies, nodes)...)
	case len(now.Endangered)+len(now.Behind()) == 0:
		all = append(all, good("the log %s has %d lanes; copies of each stream: %d", log.UUID, log.Lanes, now.Copies)...)
	}
	return all
}
