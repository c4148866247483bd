package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/codescsv"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/room"
)

func (m *Main) codesCommand() *cobra.Command {
	return cli.Group("codes", "Import codes, export claimed ones, allot and print them", m.codesImport(), m.codesExport(),
		m.line(lineCommand{use: "allot CAMPAIGN --count N --batch NAME", short: "Allot coupons for print", t: wire.Allot,
			long: `Allot the next coupons of a campaign for print: they count as claimed, without a holder. scrip codes print then writes their
codes. The first redemption that names a customer makes him the holder. The same batch and count again is a repeat.`,
			example: "  scrip codes allot summer --count 1000000 --batch flyer-june\n  scrip codes print summer flyer-june --file flyer-june.csv"}),
		m.listAllotments(), m.codesPrint())
}

// rejectsShown is how many bad rows are printed on standard error; --rejects writes all of them.
const rejectsShown = 20

func (m *Main) codesImport() *cobra.Command {
	var rejectsFile string
	cmd := &cobra.Command{
		Use: "import CAMPAIGN [FILE]", Short: "Import codes from a CSV file",
		Long: `Import codes from a CSV file, or from standard input (FILE absent or -), into a campaign created with --codes 0.
They are claimed in the order of the file.

The codes are in the column named "code", or in the first one. A byte-order mark, CRLF, empty rows, other columns, and
semicolons or tabs instead of commas are accepted. Codes are 3 to 64 of A-Z 0-9 - _; case does not matter.
Those of fewer than 8 symbols, which can be guessed, need --weak-codes. A code that
occurs twice, or was imported before, is imported once. A row without a usable code is reported with its number and skipped;
the exit code is then 3. A second import of the same file adds the missing codes.`,
		Example: `  scrip codes import partner codes.csv --rejects bad-rows.csv
  scrip codes import partner < codes.csv`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) == 2 {
				return nil
			}
			return cli.Args("CAMPAIGN")(cmd, given)
		},
	}
	id := idFlag(cmd, true)
	cmd.Flags().StringVar(&rejectsFile, "rejects", "", "`FILE` to write all bad rows to, as CSV: row, text, reason")
	weak := cmd.Flags().Bool("weak-codes", false, "import codes of fewer than 8 symbols, too")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		in, size, err := m.open(given[1:])
		if err != nil {
			return err
		}
		defer in.Close()
		var rejects io.WriteCloser
		if rejectsFile != "" {
			if rejects, err = createPrivate(rejectsFile); err != nil {
				return fmt.Errorf("creating the file for bad rows: %w", err)
			}
			defer rejects.Close()
		}
		s, err := m.connect()
		if err != nil {
			return err
		}
		defer s.close()
		i := &csvImport{m: m, in: in, rejects: rejects, weak: *weak, bar: m.bar("importing", size, true)}
		return i.run(cmd.Context(), s, given[0], *id)
	}
	return cmd
}

// open returns the file to import and its size, -1 if unknown.
func (m *Main) open(given []string) (io.ReadCloser, int64, error) {
	if len(given) == 0 || given[0] == "-" {
		if m.TerminalIn {
			return nil, 0, cli.Usagef("give the FILE to import, or pipe it to standard input")
		}
		return io.NopCloser(m.In), -1, nil
	}
	f, err := os.Open(given[0])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, cli.Usagef("there is no file %s", given[0])
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		_ = f.Close()
		return nil, 0, cli.Usagef("%s is not a file", given[0])
	}
	return f, info.Size(), nil
}

// csvImport is one import of a file.
type csvImport struct {
	m       *Main
	in      io.Reader
	rejects io.Writer // nil = none
	weak    bool
	bar     *bar

	report  codescsv.Report
	badRows int
	readErr error
}

// imported is an import's result in JSON.
type imported struct {
	ID         string `json:"id"`
	Status     string `json:"status"`
	Campaign   string `json:"campaign"`
	Rows       int    `json:"rows"`
	Count      uint64 `json:"count"`
	There      uint64 `json:"already_there"`
	Duplicates int    `json:"duplicates"`
	Rejected   int    `json:"rejected"`
}

func (i *csvImport) run(ctx context.Context, s *session, campaign, id string) error {
	if id == "" {
		id = uuid.Must(uuid.NewV7()).String()
	}
	opts := []client.Option{client.ID(id)}
	if i.weak {
		opts = append(opts, client.WeakCodes())
	}
	out, err := s.ImportCodes(ctx, campaign, i.codes, nil, opts...)
	i.bar.end()
	if err == nil {
		err = i.readErr // the codes read before this error are imported
	}
	if err != nil {
		return fmt.Errorf("%w; import the same file again: codes that were imported already are skipped", explain(err))
	}
	if out.Refused() {
		return i.m.answer(out)
	}
	sum := imported{ID: out.ID, Status: out.Status, Campaign: out.Campaign, Rows: i.report.Rows, Count: out.Count,
		There: uint64(i.report.Codes) - out.Count, Duplicates: i.report.Duplicates, Rejected: i.report.Rejected}
	if err := i.print(sum); err != nil {
		return err
	}
	if sum.Rejected > 0 {
		return cli.ErrRefused
	}
	return nil
}

func (i *csvImport) print(sum imported) error {
	if sum.Rejected > rejectsShown && i.rejects == nil {
		fmt.Fprintf(i.m.Err, "… and %d more bad rows; --rejects FILE writes all of them\n", sum.Rejected-rejectsShown)
	}
	if i.m.global.output == outputJSON {
		return cli.JSON(i.m.Out, sum)
	}
	return cli.Fields(i.m.Out, [][2]string{
		{"imported", ""}, {"campaign", sum.Campaign}, {"rows", strconv.Itoa(sum.Rows)}, {"new codes", strconv.FormatUint(sum.Count, 10)},
		{"already there", strconv.FormatUint(sum.There, 10)}, {"twice in the file", strconv.Itoa(sum.Duplicates)},
		{"bad rows", strconv.Itoa(sum.Rejected)}, {"id", sum.ID},
	})
}

// errEnough ends reading after the import has failed.
var errEnough = errors.New("the import ended")

// codes yields the file's codes.
func (i *csvImport) codes(yield func(string) bool) {
	rejects := replay.NewCSVWriter(io.Discard)
	if i.rejects != nil {
		rejects = replay.NewCSVWriter(i.rejects)
		_ = rejects.Write("row", "text", "reason")
	}
	var err error
	i.report, err = codescsv.Read(io.TeeReader(i.in, i.bar), i.weak, func(code string) error {
		if !yield(code) {
			return errEnough
		}
		return nil
	}, func(r codescsv.Reject) error {
		i.badRows++
		if i.rejects == nil && i.badRows <= rejectsShown {
			i.bar.clear()
			fmt.Fprintf(i.m.Err, "row %d: %s\n", r.Row, r.Reason)
		}
		return rejects.Write(strconv.Itoa(r.Row), r.Text, r.Reason)
	})
	failed := rejects.Flush()
	if !errors.Is(err, errEnough) {
		i.readErr = errors.Join(err, failed)
	}
}

// $1 = campaign
const exportSQL = `SELECT campaign, n, code, customer_id, status, claimed_at, expires_at, redeemed_count, redeemed_at
FROM scrip.coupon WHERE campaign = $1 ORDER BY n`

func (m *Main) codesExport() *cobra.Command {
	var postgres, file, mask string
	var how codescsv.Form
	cmd := &cobra.Command{
		Use: "export CAMPAIGN", Short: "Export the claimed codes of a campaign as CSV",
		Long: `Export the claimed coupons of a campaign as CSV, in the order in which they were claimed, to standard output or --file.
Texts that a spreadsheet would run as a formula, and those that start with a single quote, have a single quote before them.
With -o json, one object per line, and all texts as they are. Codes that are not claimed are not exported.

The coupons are read from the read tables, whose URL is in the server's scrip.json or given by --postgres. Coupons claimed
in the last seconds may be missing. The export is recorded in the audit stream, see scrip audit; for that it needs the server,
with the key of an operator or the credentials of the data directory.

` + maskHelp,
		Example: `  scrip codes export summer > summer.csv
  scrip codes export summer --mask-codes mask.key --file for-marketing.csv`,
		Args: cli.Args("CAMPAIGN"),
	}
	idFlag(cmd, false)
	cmd.Flags().StringVar(&postgres, "postgres", "", "`URL` of the database with the read tables")
	cmd.Flags().StringVar(&file, "file", "", "`FILE` to write instead of standard output")
	cli.WithVariable(cmd.Flags())
	maskFlag(cmd, &mask) // it has no variable: a forgotten one would change exports without notice
	cmd.RunE = func(cmd *cobra.Command, given []string) (err error) {
		if how.Mask, err = openMask(mask); err != nil {
			return err
		}
		s, err := m.connect()
		if err != nil {
			return fmt.Errorf("exports are recorded in the audit stream: %w", err)
		}
		defer s.close()
		if postgres = cmp.Or(postgres, s.server.PostgresURL); postgres == "" {
			return cli.Usagef("the URL of the read tables is unknown here; give --postgres URL")
		}
		to := m.Out
		if file != "" {
			f, err := createPrivate(file)
			if err != nil {
				return err
			}
			defer f.Close()
			to = room.File(f)
		}
		return m.export(cmd.Context(), s, postgres, given[0], to, how)
	}
	return cmd
}

// createPrivate is os.Create with mode 0600: who has a code can redeem it.
func createPrivate(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

func (m *Main) export(ctx context.Context, s *session, url, campaign string, to io.Writer, how codescsv.Form) error {
	db, err := schema.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connecting to the read tables: %w; claims work without them, an export does not", err)
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	known, err := readmodel.HasCampaign(ctx, db, campaign)
	if err != nil {
		return fmt.Errorf("reading the tables: %w", err)
	}
	if !known {
		return m.answer(wire.Outcome{Status: wire.StatusRefused, Refusal: wire.CampaignNotFound, Campaign: campaign,
			Message: "there is no campaign " + campaign + " in the read tables"})
	}
	if err := s.ask(ctx, "codes.export", fields{"campaign": campaign}, &struct{}{}); err != nil {
		return fmt.Errorf("nothing was exported, because it cannot be recorded in the audit stream: %w", err)
	}
	// It locks what it reads before the first row.
	rows, err := schema.Again(func() (pgx.Rows, error) { return db.Query(ctx, exportSQL, campaign) })
	if err != nil {
		return fmt.Errorf("reading the tables: %w", err)
	}
	return m.writeRows(rows, to, how)
}

// writeRows writes a query's coupons.
func (m *Main) writeRows(rows pgx.Rows, to io.Writer, how codescsv.Form) error {
	out := bufio.NewWriter(to)
	lines, objects := replay.NewCSVWriter(out), json.NewEncoder(out)
	inJSON := m.global.output == outputJSON
	if !inJSON {
		_ = lines.Write(codescsv.Columns...) // Flush below returns a failure
	}
	var r codescsv.Row
	_, err := pgx.ForEachRow(rows, []any{&r.Campaign, &r.N, &r.Code, &r.CustomerID, &r.Status, &r.ClaimedAt, &r.ExpiresAt, &r.RedeemedCount, &r.RedeemedAt}, func() error {
		if inJSON {
			how.Hide(&r)
			return objects.Encode(&r)
		}
		return lines.Write(how.Fields(&r)...)
	})
	if err := errors.Join(err, lines.Flush(), out.Flush()); err != nil {
		return fmt.Errorf("exporting: %w", err)
	}
	return nil
}
