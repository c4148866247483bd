package pgd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// leftLimit is how long a postmaster that is not adopted may take for a fast shutdown, which ends with a checkpoint.
	leftLimit = 30 * time.Second
	// tryLimit is how long a start is tried again while other programs take its ports or processes of a killed postmaster end.
	tryLimit = 30 * time.Second
	tryPause = 100 * time.Millisecond
)

// home is a place that is prepared and locked.
type home struct {
	place    place
	user     account
	bin      Binaries
	settings map[string]string
	// certificate is Options.Certificate, and cert the one in use.
	certificate func() (cert, key []byte)
	cert        []byte
	password    string
	lock        *os.File
	untie       func()
	log         *slog.Logger
	signals     *signals
}

// prepare finds the place, takes its lock, and makes the cluster if there is none. A postmaster that runs there was left by an
// earlier owner. It is stopped unless the cluster and its configuration are as they would be made now.
func (c *Cluster) prepare(ctx context.Context) (_ *home, err error) {
	dataDir, all, err := c.materials()
	if err != nil {
		return nil, err
	}
	got, err := c.choose(ctx, dataDir, all[0])
	if err != nil {
		return nil, err
	}
	h := &home{place: got.place, user: got.user, bin: all[0], settings: c.settings(got.place), certificate: c.opts.Certificate, untie: func() {}, log: c.log, signals: &c.signals}
	if h.user.uid == 0 {
		return nil, fmt.Errorf("the PostgreSQL cluster %s belongs to root, as whom PostgreSQL does not run: chown -R %s %[1]s, or move it away (its tables are rebuilt from the log)",
			h.place.data(), c.unprivileged(ctx).name)
	}
	if h.lock, err = lockPlace(h.place); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.leave())
		}
	}()
	if err := h.narrow(); err != nil {
		return nil, err
	}
	pm := h.running()
	if pm != nil && (got.inherited || !h.current(all) || c.opts.Port != 0 && pm.port != c.opts.Port) {
		c.log.WarnContext(ctx, "stopping the PostgreSQL that an earlier scrip left running: it is of another version, configuration or data directory", "pid", pm.pid, "dir", h.place.data())
		if _, err := h.halt(ctx, leftLimit); err != nil {
			return nil, err
		}
		pm = nil
	}
	if pm == nil {
		if err := h.clearPidfile(); err != nil {
			return nil, err
		}
	}
	if got.inherited { // its tables are a fold of another log, which is not in this data directory any more
		if err := h.setAside(ctx, "data.former", "the PostgreSQL cluster is of an earlier data directory of this name"); err != nil {
			return nil, err
		}
	}
	if err := remember(dataDir, h.place); err != nil {
		return nil, fmt.Errorf("recording where the PostgreSQL cluster is: %w", err)
	}
	h.discardHalfMade(ctx)
	if h.place.made() {
		if err := h.pick(ctx, all); err != nil {
			return nil, err
		}
	}
	if !h.place.made() {
		return h, h.create(ctx)
	}
	return h, h.passwords(ctx)
}

// settings are Options.Settings and those of the listener.
func (c *Cluster) settings(p place) map[string]string {
	all := maps.Clone(c.opts.Settings)
	if all == nil {
		all = map[string]string{}
	}
	if ip := net.ParseIP(c.opts.Host); ip != nil && ip.IsUnspecified() {
		all["listen_addresses"] = c.opts.Host
	} else if c.opts.Host != "" {
		all["listen_addresses"] = "127.0.0.1," + c.opts.Host
	}
	if c.opts.Certificate != nil {
		all["ssl"], all["ssl_cert_file"], all["ssl_key_file"] = "on", p.cert(), p.key()
	}
	return all
}

// renew writes the certificate in use for PostgreSQL's user. It returns false if that is there.
func (h *home) renew() (changed bool, err error) {
	if h.certificate == nil {
		return false, nil
	}
	cert, key := h.certificate()
	if bytes.Equal(cert, h.cert) {
		return false, nil
	}
	if err := h.held(); err != nil {
		return false, err
	}
	h.cert = cert
	return true, errors.Join(atomicfile.Write(h.place.cert(), cert, 0o600), atomicfile.Write(h.place.key(), key, 0o600), h.user.give(h.place.cert()), h.user.give(h.place.key()))
}

// pick takes the installation that made the cluster; a cluster that none can read is set aside.
func (h *home) pick(ctx context.Context, all []Binaries) error {
	bin, major, err := binariesFor(h.place, all)
	if err != nil {
		return err
	}
	if bin.Major != 0 {
		h.bin = bin
		return nil
	}
	return h.setAside(ctx, fmt.Sprintf("data.postgresql-%d", major), fmt.Sprintf("PostgreSQL %[1]d made the cluster, and is not installed (schemas of others, roles and "+
		"scrip_meta.dead_letter are not made again: to get them back, start PostgreSQL %[1]d on the old cluster and use its pg_dump)", major))
}

// current reports whether a cluster has everything that a start would give it: a version that is installed, both passwords, and
// the configuration, which names the exact version.
func (h *home) current(all []Binaries) bool {
	bin, _, err := binariesFor(h.place, all)
	if err != nil || bin.Major == 0 || sizeOf(h.place.password()) == 0 || sizeOf(h.place.admin()) == 0 {
		return false
	}
	conf, err := os.ReadFile(h.place.conf())
	hba, herr := os.ReadFile(h.place.hba())
	return err == nil && herr == nil && string(hba) == hbaText && string(conf) == configText(h.place, bin, h.settings)
}

// materials returns the data directory without symbolic links, and the installations to choose from.
func (c *Cluster) materials() (string, []Binaries, error) {
	if strings.TrimSpace(c.opts.DataDir) == "" {
		return "", nil, errors.New("no data directory given for the PostgreSQL cluster: give --data DIR")
	}
	dir, err := filepath.Abs(c.opts.DataDir)
	if err == nil {
		err = atomicfile.MkdirAll(dir, 0o755)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", nil, fmt.Errorf("making the data directory: %w", err)
	}
	if c.opts.Binaries != (Binaries{}) {
		return dir, []Binaries{c.opts.Binaries}, nil
	}
	all, err := findAll()
	return dir, all, err
}

// held fails if the place was moved or replaced since it was locked: its paths lead to another cluster then, or to none.
func (h *home) held() error {
	if h.lock == nil { // tests of parts
		return nil
	}
	err := atomicfile.Held(h.lock, h.place.lock())
	if errors.Is(err, atomicfile.ErrReplaced) {
		return fmt.Errorf("the directory of the PostgreSQL cluster, %s: %w while scrip used it; stop scrip before it is moved, and start it again", string(h.place), err)
	}
	return nil // also if it is unknown
}

// abandon begins a fast shutdown of a postmaster whose place was moved. It is not found by path: its working directory moves with the
// place.
func (h *home) abandon(pm *postmaster) {
	beside, err := os.Stat(fmt.Sprintf("/proc/%d/cwd/../lock", pm.pid))
	mine, merr := h.lock.Stat()
	if err == nil && merr == nil && os.SameFile(beside, mine) {
		_ = syscall.Kill(pm.pid, syscall.SIGINT)
	}
}

// leave releases the lock of the place.
func (h *home) leave() error {
	h.untie()
	_ = syscall.Flock(int(h.lock.Fd()), syscall.LOCK_UN) // Close would leave it to a child that is just being started, until its exec
	return h.lock.Close()
}

// bringUp starts a postmaster in a prepared place, or adopts the one that runs there, and waits until it is ready. On an error
// nothing is left running.
func (c *Cluster) bringUp(ctx context.Context, h *home) (*postmaster, error) {
	c.mu.Lock()
	port := c.port
	c.mu.Unlock()
	kept, _ := os.ReadFile(h.place.port())
	if port == 0 {
		port, _ = strconv.Atoi(strings.TrimSpace(string(kept))) // 0 = none is kept
	}
	for started := time.Now(); ; {
		pm, err := c.tryUp(ctx, h, port)
		if err == nil {
			err = c.tie(h)
		}
		if err == nil && len(kept) == 0 {
			err = atomicfile.Write(h.place.port(), []byte(strconv.Itoa(pm.port)+"\n"), 0o600)
		}
		if err == nil {
			return pm, nil
		}
		c.signals.failed.Send(err)
		if _, halted := h.halt(ctx, c.opts.StopTimeout); halted != nil {
			return nil, errors.Join(err, halted)
		}
		if errors.Is(err, errPortTaken) && c.opts.Port == 0 {
			c.log.WarnContext(ctx, "another program has the port of PostgreSQL; it moves to another one until the next start", "port", port)
			port = 0
		} else if !errors.Is(err, errStillUsed) {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		if time.Since(started) > tryLimit || natsx.Pause(ctx, tryPause) != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// tryUp is one attempt on one port, 0 = any free one.
func (c *Cluster) tryUp(ctx context.Context, h *home, port int) (pm *postmaster, err error) {
	if err := h.held(); err != nil {
		return nil, err
	}
	if pm = h.running(); pm != nil {
		c.log.InfoContext(ctx, "adopting the PostgreSQL that runs already", "pid", pm.pid, "dir", h.place.data())
		yield(pm.pid, c.opts.Nice)
		return pm, h.awaitReady(ctx, pm)
	}
	if port == 0 {
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	if err := h.writeConfig(); err != nil {
		return nil, fmt.Errorf("preparing the start of PostgreSQL in %s: %w", string(h.place), err)
	}
	if pm, err = h.launch(ctx, port, c.opts.Nice); err != nil {
		return nil, err
	}
	return pm, h.awaitReady(ctx, pm)
}

// tieScript waits for a line, and at the end of its input instead stops the postmaster. The id in a postmaster.pid that was left
// may be of any program; a postmaster works in its data directory.
const tieScript = `read -r line || { read -r pid < data/postmaster.pid &&
	{ [ ! -e /proc/self ] || [ data -ef "/proc/$pid/cwd" ]; } && kill -QUIT "$pid"; }`

// tie stops the cluster at the end of this process, however it ends: the kernel closes the pipe to a shell that waits for that.
func (c *Cluster) tie(h *home) error {
	h.untie()
	if !c.opts.Tied {
		return nil
	}
	cmd := h.user.command(context.Background(), string(h.place), "/bin/sh", "-c", tieScript)
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("tying PostgreSQL to this process: %w", err)
	}
	h.untie = sync.OnceFunc(func() {
		_, _ = pipe.Write([]byte("\n")) // the shell ends without more
		_ = cmd.Wait()
	})
	return nil
}

// writeConfig writes the configuration and makes an empty directory for the socket: like a stale postmaster.pid, a lock file
// left beside an old socket would refuse the start if its process id belongs to another program now.
func (h *home) writeConfig() error {
	if os.Geteuid() == 0 { // checked again: much time may have passed since the place was chosen
		if err := notPlanted(filepath.Dir(string(h.place)), h.place); err != nil {
			return err
		}
	}
	if err := h.narrow(); err != nil { // again at each restart
		return err
	}
	h.cert = nil // below run
	err := errors.Join(
		atomicfile.Sweep(h.place.hba()), atomicfile.Sweep(h.place.conf()), atomicfile.Sweep(h.place.password()), atomicfile.Sweep(h.place.admin()), atomicfile.Sweep(h.place.log()+".1"),
		atomicfile.Write(h.place.hba(), []byte(hbaText), 0o644),
		atomicfile.Write(h.place.conf(), []byte(configText(h.place, h.bin, h.settings)), 0o644),
		os.RemoveAll(h.place.run()),
		os.Mkdir(h.place.run(), 0o700),
		h.user.give(h.place.run()),
	)
	if err == nil {
		_, err = h.renew()
	}
	return err
}

// narrow takes back what a platform gave to others: PostgreSQL refuses a data directory that they may write, and the passwords are its
// owner's. It accepts one that a group may read, which an administrator may have chosen.
func (h *home) narrow() error {
	files := []atomicfile.Private{{Path: string(h.place), Most: fs.ModeDir | 0o711}, {Path: h.place.data(), Most: fs.ModeDir | 0o700}}
	if info, err := os.Lstat(h.place.data()); err == nil && info.Mode().Perm()&^0o750 == 0 {
		files = files[:1]
	}
	for _, path := range []string{h.place.password(), h.place.admin(), h.place.port(), h.place.lock(), h.place.log(), h.place.log() + ".1"} {
		files = append(files, atomicfile.Private{Path: path, Most: 0o600})
	}
	changed, err := atomicfile.Narrow(files...)
	if len(changed) > 0 {
		h.log.Warn("other users could read or change files of the PostgreSQL cluster; their modes were put right", "files", len(changed), "first", changed[0])
	}
	return err
}

// lockPlace takes the lock. The kernel releases it when its owner dies, however it dies: a postmaster that is found running
// while this process has the lock has no owner. The error names the process that has it.
func lockPlace(p place) (*os.File, error) {
	f, err := atomicfile.Lock(p.lock())
	var locked *atomicfile.Locked
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("%s runs the PostgreSQL cluster %s: stop that one, use another --data, "+
			"or, if this data directory is a copy, remove its file %s", locked.Owner, string(p), pointerFile)
	}
	if err != nil {
		return nil, fmt.Errorf("locking the PostgreSQL cluster: %w", err)
	}
	return f, nil
}
