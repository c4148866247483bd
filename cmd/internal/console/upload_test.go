package console

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
)

// one is a listener with one connection.
type one chan net.Conn

func (l one) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l one) Close() error   { return nil }
func (l one) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// A form whose file does not begin is cut off, whether its client sends nothing or a byte now and then; one that is slow and not
// too slow is read to its end.
func TestUploadsArriveInTime(t *testing.T) {
	const form = "--x\r\nContent-Disposition: form-data; name=\"weak_codes\"\r\n\r\n1\r\n" +
		"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\n\r\ncode\r\n--x--\r\n"
	for what, c := range map[string]struct {
		parts []string
		pause time.Duration
		want  string
	}{
		"silent":   {nil, 0, "the file did not arrive in time; send it again, over a faster connection"},
		"too slow": {strings.SplitAfter(form, ""), time.Second, "the file did not arrive in time; send it again, over a faster connection"},
		"slow":     {strings.SplitAfter(form, "\r\n"), web.BodyWait / 20, "?weak_codes=1 code"},
		"empty":    {[]string{"--x--\r\n" + strings.Repeat(" ", len(form)-7)}, 0, "choose a file"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := make(one, 1)
				hs := web.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					stream := web.NewStream(w)
					query, file, problem := upload(stream, r)
					text := ""
					if problem != nil {
						text = problem.Detail
					} else {
						raw, _ := io.ReadAll(file)
						text = query + " " + string(raw)
					}
					stream.Writing(liveWait)
					_, _ = io.WriteString(w, text)
				}))
				go func() { _ = hs.Serve(l) }()
				client, server := net.Pipe()
				l <- server
				go func() {
					head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: %d\r\n\r\n", len(form))
					for _, part := range append([]string{head}, c.parts...) {
						if _, err := io.WriteString(client, part); err != nil {
							return
						}
						time.Sleep(c.pause)
					}
				}()
				resp, err := http.ReadResponse(bufio.NewReader(client), nil)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(resp.Body); string(got) != c.want || err != nil {
					t.Errorf("%q, %v", got, err)
				}
				_ = client.Close()
				close(l)
				_ = hs.Close()
				time.Sleep(time.Hour) // what still sends ends
			})
		})
	}
}
