package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/service"
)

// pageFlags adds the flags of commands that print pages.
func pageFlags(cmd *cobra.Command, page *client.Page) {
	cmd.Flags().Var(&cli.Value{Kind: "N", Parse: func(s string) error {
		var n uint32
		err := cli.Number(&n, 0, 1, service.MaxShown).Set(s)
		page.Limit = int(n)
		return err
	}}, "limit", fmt.Sprintf("how many to show at most, up to %d (default 100)", service.MaxShown))
	cmd.Flags().StringVar(&page.Before, "before", "", "show the page after the one that ended with this `CURSOR`")
}

// historyEntry holds the shown fields of an entry of the history; -o json has all.
type historyEntry struct {
	At        time.Time  `json:"at"`
	What      string     `json:"what"`
	Lane      int        `json:"lane"`
	Sequence  uint64     `json:"sequence"`
	Line      int        `json:"line"`
	ID        string     `json:"id"`
	By        string     `json:"by"`
	Campaign  string     `json:"campaign"`
	Code      string     `json:"code"`
	Customer  string     `json:"customer_id"`
	Order     string     `json:"order_id"`
	Reason    string     `json:"reason"`
	Kind      string     `json:"kind"`
	DueAt     *time.Time `json:"due_at"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// about is the text of the last column: the fields without a column of their own.
func (e *historyEntry) about() string {
	var about []string
	add := func(name, value string) {
		if value != "" {
			about = append(about, name+" "+value)
		}
	}
	add("order", e.Order)
	add("reason", e.Reason)
	add("by", e.By)
	add("before it", e.Kind)
	if e.DueAt != nil {
		add("due", e.DueAt.UTC().Format(time.RFC3339Nano))
	}
	if e.ExpiresAt != nil {
		until := "until"
		if e.What == "expired" {
			until = "at"
		}
		add(until, e.ExpiresAt.UTC().Format(time.RFC3339Nano))
	}
	return strings.Join(about, ", ")
}

// printHistory prints the history of the read tables or why there is none, and the flag for the next page.
func (m *Main) printHistory(h client.History) error {
	var entries []historyEntry
	if h.Unavailable != "" {
		fmt.Fprintf(m.Out, "history is not available: %s\n", cli.Line(h.Unavailable))
	} else if err := json.Unmarshal(h.History, &entries); err != nil {
		fmt.Fprintln(m.Out, "the history has a format that this version cannot read; -o json shows it")
	}
	if len(entries) > 0 {
		var rows [][]string
		for i := range entries {
			e := &entries[i]
			rows = append(rows, []string{
				e.At.UTC().Format(time.RFC3339Nano), e.What, e.Campaign, orText(e.Code, "-"), orText(e.Customer, "-"),
				fmt.Sprintf("%d/%d/%d", e.Lane, e.Sequence, e.Line), orText(e.ID, "-"), e.about(),
			})
		}
		fmt.Fprintln(m.Out)
		if err := cli.Table(m.Out, "AT WHAT CAMPAIGN CODE CUSTOMER POSITION ID ABOUT", rows); err != nil {
			return err
		}
	}
	if h.Note != "" {
		fmt.Fprintln(m.Out, cli.Line(h.Note))
	}
	if h.More {
		fmt.Fprintf(m.Out, "there is more: --before '%s'\n", h.Next)
	}
	return nil
}
