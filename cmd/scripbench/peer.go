package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
)

// peerCommand runs the HTTP servers that claim-http compares with. scripbench starts itself with it, so that their CPU time is
// that of a process of their own.
func peerCommand() *cobra.Command {
	var listen, postgres string
	var size int
	cmd := &cobra.Command{Use: "peer", Short: "Serve HTTP as claim-http compares with", Hidden: true, Args: cli.NoArgs}
	fs := cmd.Flags()
	fs.StringVar(&listen, "listen", "127.0.0.1:0", "`ADDRESS` to listen on")
	fs.StringVar(&postgres, "postgres", "", "claim with SKIP LOCKED in the database at this `URL`; absent = answer only")
	fs.IntVar(&size, "size", bareAnswer, "bytes of an answer without a database")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		handler := bareHandler(size)
		if postgres != "" {
			config, err := pgxpool.ParseConfig(postgres)
			if err != nil {
				return err
			}
			config.MaxConns, config.MinConns = pgCallers, pgCallers
			db, err := pgxpool.NewWithConfig(ctx, config)
			if err != nil {
				return err
			}
			defer db.Close()
			handler = (&claimHandler{db: db}).serve
		}
		return serve(ctx, listen, handler)
	}
	return cmd
}

// serve serves claims until ctx ends. The limits are those of scrip's server.
func serve(ctx context.Context, listen string, claims http.HandlerFunc) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/campaigns/{campaign}/claims", claims)
	hs := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: patience, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = hs.Close() })
	defer stop()
	if err := hs.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// maxClaim is the most bytes of a claim's body.
const maxClaim = 16 << 10

// bareAnswer is about the size of scrip's answer to a claim.
const bareAnswer = 142

// bareHandler reads the body and answers with the headers and as many bytes as scrip's answer to a claim has.
func bareHandler(size int) http.HandlerFunc {
	body := []byte(`{"status":"claimed","code":"` + strings.Repeat("x", max(0, size-31)) + "\"}\n")
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxClaim)); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		claimHeader(w.Header(), r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body) // the client may have closed the connection
	}
}

// claimHeader sets the headers of an answer to a claim.
func claimHeader(h http.Header, id string) {
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Scrip-Command-Id", id)
}

// claimHandler claims coupons with FOR UPDATE SKIP LOCKED, one transaction for each request.
type claimHandler struct {
	db *pgxpool.Pool
	// seen is, by campaign, up to which number coupons are most likely claimed.
	seen sync.Map
}

var claimHTTPSQL = recipeText("claim_http.sql")

// claimAnswer is the JSON of an answer.
type claimAnswer struct {
	ID         string `json:"id"`
	Status     string `json:"status"`
	Campaign   string `json:"campaign"`
	N          int    `json:"n"`
	Code       string `json:"code"`
	CustomerID string `json:"customer_id"`
}

func (h *claimHandler) serve(w http.ResponseWriter, r *http.Request) {
	var in struct {
		CustomerID string `json:"customer_id"`
	}
	a := claimAnswer{ID: r.Header.Get("Idempotency-Key"), Status: "claimed", Campaign: r.PathValue("campaign")}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxClaim)).Decode(&in)
	campaign, wrong := strconv.Atoi(a.Campaign[strings.LastIndexByte(a.Campaign, '-')+1:])
	if a.CustomerID = in.CustomerID; err != nil || wrong != nil || a.ID == "" || a.CustomerID == "" {
		http.Error(w, `{"code":"malformed"}`, http.StatusBadRequest)
		return
	}
	repeat, err := h.claim(r.Context(), campaign, &a)
	claimHeader(w.Header(), a.ID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"code":"sold_out"}`)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	case repeat:
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(http.StatusCreated)
	}
	_ = json.NewEncoder(w).Encode(a) // the client may have closed the connection
}

// claim completes an answer. It returns pgx.ErrNoRows when all coupons are claimed.
func (h *claimHandler) claim(ctx context.Context, campaign int, a *claimAnswer) (repeat bool, err error) {
	v, _ := h.seen.LoadOrStore(a.Campaign, new(atomic.Int64))
	seen := v.(*atomic.Int64)
	for first := seen.Load(); ; first = 0 {
		err := h.db.QueryRow(ctx, claimHTTPSQL, campaign, a.CustomerID, first, a.ID).Scan(&a.N, &a.Code)
		var taken *pgconn.PgError
		switch {
		case err == nil:
			for old := seen.Load(); old < int64(a.N) && !seen.CompareAndSwap(old, int64(a.N)); old = seen.Load() {
			}
			return false, nil
		case errors.As(err, &taken) && taken.Code == "23505": // another request of the same customer or key was faster
		case !errors.Is(err, pgx.ErrNoRows):
			return false, fmt.Errorf("claiming: %w", err)
		}
		// $1 = campaign   $2 = customer   $3 = Idempotency-Key
		const had = `SELECT n, code FROM coupon WHERE campaign = $1 AND customer_id = $2 UNION ALL SELECT n, code FROM coupon WHERE campaign = $1 AND claim_id = $3 LIMIT 1`
		err = h.db.QueryRow(ctx, had, campaign, a.CustomerID, a.ID).Scan(&a.N, &a.Code)
		if !errors.Is(err, pgx.ErrNoRows) || first == 0 {
			return true, err
		}
	}
}
