package logline

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// enough is longer than a machine under load needs to write what is in a queue.
const enough = time.Minute

var dropped = regexp.MustCompile(`level=WARN msg="lines of this log were dropped.*" lines=(\d+)\n`)

// reported is the sum of the numbers in reports, and the text without them.
func reported(t *testing.T, text string) (n uint64, rest string) {
	t.Helper()
	for _, m := range dropped.FindAllStringSubmatch(text, -1) {
		one, err := strconv.ParseUint(m[1], 10, 64)
		streamtest.Must(t, err)
		n += one
	}
	return n, regexp.MustCompile(`time=\S+ `+dropped.String()).ReplaceAllString(text, "")
}

// TestAPipeThatNobodyReads: no caller waits. What is lost is counted, and reported where it is missing once somebody
// reads.
func TestAPipeThatNobodyReads(t *testing.T) {
	r, w, err := os.Pipe()
	streamtest.Must(t, err)
	l := Open(w, Options{})
	const lines = 4 * capacity / 64
	for i := range lines {
		fmt.Fprintf(l, "%063d\n", i)
	}
	l.Close(time.Millisecond) // gives up
	if l.Dropped() == 0 || l.Dropped() >= lines {
		t.Fatalf("%d of %d lines were dropped", l.Dropped(), lines)
	}
	text := make(chan string)
	go func() {
		all, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		text <- string(all)
	}()
	l.Close(enough)
	streamtest.Must(t, w.Close())
	n, rest := reported(t, <-text)
	if n != l.Dropped() {
		t.Errorf("%d lines are reported, %d were dropped", n, l.Dropped())
	}
	last := -1
	for line := range strings.Lines(rest) {
		i, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
		if err != nil || i <= last {
			t.Fatalf("line %q after %d", line, last)
		}
		last = i
	}
	if got := uint64(strings.Count(rest, "\n")); got+n != lines {
		t.Errorf("%d lines were written and %d dropped, of %d", got, n, lines)
	}
}

// TestAPipeWithoutAReader: lines are lost and counted, and the stop does not wait.
func TestAPipeWithoutAReader(t *testing.T) {
	r, w, err := os.Pipe()
	streamtest.Must(t, err)
	defer w.Close()
	streamtest.Must(t, r.Close())
	l := Open(w, Options{JSON: true})
	l.Logger().Warn("lost")
	began := time.Now()
	l.Close(enough)
	if l.Dropped() != 1 || time.Since(began) > enough/2 {
		t.Errorf("%d lines were dropped, after %s", l.Dropped(), time.Since(began))
	}
}

// raw writes to a descriptor as it is: in part, if a pipe that does not block has no more room.
type raw int

func (fd raw) Write(p []byte) (int, error) {
	n, err := syscall.Write(int(fd), p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return max(n, 0), err
}

// TestAReaderThatComesBack: the first line that it reads is the report, and no line is in pieces.
func TestAReaderThatComesBack(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	streamtest.Must(t, syscall.Mkfifo(fifo, 0o600))
	open := func(flag int) int {
		fd, err := syscall.Open(fifo, flag|syscall.O_NONBLOCK, 0)
		streamtest.Must(t, err)
		t.Cleanup(func() { _ = syscall.Close(fd) })
		return fd
	}
	read := func(fd int) string {
		t.Helper()
		buf := make([]byte, 2*capacity)
		n, err := syscall.Read(fd, buf)
		streamtest.Must(t, err)
		return string(buf[:n])
	}
	reader := open(syscall.O_RDONLY)
	w := writer{l: &Log{to: raw(open(syscall.O_WRONLY))}}
	w.l.opts.JSON = true
	line := strings.Repeat("x", 999) + "\n"
	if w.write([]byte(strings.Repeat(line, 500))) { // more than a pipe holds
		t.Fatal("all was written into a pipe that nobody reads")
	}
	text := read(reader)
	whole := strings.Count(text, line)
	if len(text) == whole*len(line) {
		t.Fatal("no line was cut")
	}
	_ = syscall.Close(reader)
	if w.write([]byte(line)) {
		t.Error("a line was written without a reader")
	}
	reader = open(syscall.O_RDONLY)
	if !w.write([]byte("{\"msg\":\"last\"}\n")) {
		t.Error("the line was not written")
	}
	in := bufio.NewScanner(strings.NewReader(text + read(reader)))
	for range whole + 1 { // with the one that was cut
		if !in.Scan() || in.Text()+"\n" != line {
			t.Fatalf("a line is in pieces: %.100s", in.Text())
		}
	}
	want := fmt.Sprintf(`"lines":%d}`, 500-whole-1+1)
	if !in.Scan() || !strings.HasPrefix(in.Text(), "{") || !strings.HasSuffix(in.Text(), want) {
		t.Errorf("the report is %s, want %s", in.Text(), want)
	}
	if !in.Scan() || in.Text() != `{"msg":"last"}` || in.Scan() {
		t.Errorf("then: %s", in.Text())
	}
}

// BenchmarkLine: what a line costs its caller, written by itself as slog does, and by the queue.
func BenchmarkLine(b *testing.B) {
	r, w, err := os.Pipe()
	streamtest.Must(b, err)
	defer w.Close()
	go func() { _, _ = io.Copy(io.Discard, r) }()
	opts := Options{Level: slog.LevelDebug}
	line := func(b *testing.B, to *slog.Logger) {
		b.ReportAllocs()
		for b.Loop() {
			to.Debug("step", "lane", 3, "sequence", uint64(123456), "commands", 12, "took", 350*time.Microsecond)
		}
	}
	b.Run("direct", func(b *testing.B) { line(b, slog.New(opts.handler(w))) })
	b.Run("queue", func(b *testing.B) {
		l := Open(w, opts)
		line(b, l.Logger())
		l.Close(enough)
		b.ReportMetric(float64(l.Dropped())/float64(b.N), "dropped/op")
	})
}
