package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
)

// bareServer is net/http alone: this program, started with the command peer, so that its CPU time is that of a process of its
// own.
type bareServer struct {
	node
	addr string
}

func (s *bareServer) settings() string {
	return "net/http alone: reads the body, answers as many bytes as scrip; nothing is stored"
}

func (s *bareServer) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if s.addr, err = freeAddress(); err != nil {
		return err
	}
	return s.run(ctx, readyWithin, func(*process.Process) error {
		c, err := net.DialTimeout("tcp", s.addr, pollEvery)
		if err != nil {
			return fmt.Errorf("%w ready: %w", process.ErrWaiting, err)
		}
		return c.Close()
	}, self, "peer", "--listen", s.addr)
}

func peerCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{Use: "peer", Short: "Serve HTTP as claim-http compares with", Hidden: true, Args: cli.NoArgs}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`ADDRESS` to listen on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return serveBare(cmd.Context(), listen) }
	return cmd
}

// serveBare answers claims until ctx ends. The limits are those of scrip's server.
func serveBare(ctx context.Context, listen string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/campaigns/{campaign}/claims", bareClaim)
	hs := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: patience, MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() { _ = hs.Close() })
	defer stop()
	if err := hs.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// bareAnswer is about the size of scrip's answer to a claim, maxClaim the most bytes of a claim's body.
const bareAnswer, maxClaim = 142, 16 << 10

var bareBody = []byte(`{"status":"claimed","code":"` + strings.Repeat("x", bareAnswer-31) + "\"}\n")

// bareClaim reads the body and answers with the headers and as many bytes as scrip's answer to a claim has.
func bareClaim(w http.ResponseWriter, r *http.Request) {
	if _, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxClaim)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Scrip-Command-Id", r.Header.Get("Idempotency-Key"))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(bareBody) // the client may have closed the connection
}
