package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/codescsv"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/room"
)

func (m *Main) listAllotments() *cobra.Command {
	var page client.Page
	cmd := &cobra.Command{Use: "allotments CAMPAIGN", Short: "List the allotments of a campaign", Args: cli.Args("CAMPAIGN")}
	pageFlags(cmd, &page)
	return m.query(cmd, func(ctx context.Context, s *session, args []string) error {
		all, next, err := s.Allotments(ctx, args[0], page)
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, ops.Page[domain.AllotmentView]{Items: all, Next: next})
		}
		var rows [][]string
		for _, a := range all {
			rows = append(rows, []string{a.Batch, fmt.Sprint(a.FromN), fmt.Sprint(a.ThroughN), fmt.Sprint(a.Count), orDash(&a.AllottedAt), orDash(a.ExpiresAt)})
		}
		return m.table(next, "BATCH FROM THROUGH COUNT ALLOTTED EXPIRES", rows)
	})
}

func (m *Main) codesPrint() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "print CAMPAIGN BATCH", Short: "Write the codes of an allotment as CSV",
		Long: `Write the codes of an allotment as CSV, campaign,n,code, to --file or standard output. A file that was interrupted is gone on
with after its last whole row. Each part of the codes is recorded in the audit stream.`,
		Example: "  scrip codes print summer flyer-june --file flyer-june.csv",
		Args:    cli.Args("CAMPAIGN", "BATCH"),
	}
	idFlag(cmd, false)
	cmd.Flags().StringVar(&file, "file", "", "`FILE` to write or to go on with, instead of standard output")
	cli.WithVariable(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		to, from := m.Out, uint32(0)
		if file != "" {
			f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600) // who has a code can redeem it
			if err != nil {
				return err
			}
			defer f.Close()
			if from, err = resumed(f, args[0]); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			defer func() { err = errors.Join(err, f.Sync()) }()
			to = room.File(f)
		}
		s, err := m.connect()
		if err != nil {
			return err
		}
		defer s.close()
		header := from == 0
		return m.refusedOr(s.Print(cmd.Context(), args[0], args[1], from, func(from uint32, codes []string) error {
			_, err := to.Write(codescsv.AppendCodes(nil, args[0], from, codes, header))
			header = false
			return err
		}))
	}
	return cmd
}

// resumed cuts a file of printed codes after its last whole row, and returns the coupon that comes next, 0 = the first. A file of
// something else is left as it is, with an error.
func resumed(f *os.File, campaign string) (next uint32, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return 0, err
	}
	tail := make([]byte, min(size, 256)) // more than two rows
	at := size - int64(len(tail))
	if _, err := f.ReadAt(tail, at); err != nil {
		return 0, err
	}
	end := bytes.LastIndexByte(tail, '\n') + 1
	row := string(tail[bytes.LastIndexByte(tail[:max(end-1, 0)], '\n')+1 : end])
	fields := strings.Split(row, ",")
	switch {
	case at == 0 && (row == codescsv.PrintedHeader || end == 0 && strings.HasPrefix(codescsv.PrintedHeader, string(tail))): // written again
	case len(fields) == 3 && replay.Plain(fields[0]) == campaign:
		n, err := strconv.ParseUint(fields[1], 10, 30)
		if err != nil {
			return 0, err
		}
		next, at = uint32(n)+1, at+int64(end)
	default:
		return 0, fmt.Errorf("it is no file of printed codes of campaign %s; give another --file", campaign)
	}
	if err = f.Truncate(at); err == nil {
		_, err = f.Seek(at, io.SeekStart)
	}
	return next, err
}
