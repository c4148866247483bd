package api

import (
	"bufio"
	"context"
	"encoding/csv"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/codescsv"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// exportPage is how many coupons are read at once: no transaction stays open while a client reads slowly.
const exportPage = 2000

// ExportWanted is what an export is of.
type ExportWanted struct {
	OneCampaign
	CSV string `json:"csv,omitempty" enum:"plain,excel" doc:"excel: texts that a spreadsheet would run as a formula start with a single quote."`
}

func (a *API) exportRoute() {
	readStream(a, Route{Method: http.MethodGet, Path: "/v1/campaigns/{campaign}/coupons.csv", ID: "exportCoupons", Tag: "codes", Summary: "Export the claimed coupons as CSV",
		About: "In the order in which they were claimed, from the read tables: those of the last seconds may be missing. Codes that are not claimed " +
			"are not exported. Without the right to see codes they are masked by a keyed hash, equal for equal codes. Exports are recorded in the audit stream. " +
			"A transfer that ends early is cut off, not completed.",
		Operation: access.OpExportCodes},
		huma.Operation{
			Responses: answer("200", "CSV with a header row: campaign, n, code, customer_id, status, claimed_at, expires_at, redeemed_count, redeemed_at.",
				map[string]*huma.MediaType{"text/csv": {Schema: text("CSV in UTF-8.")}}),
		}, a.exportCoupons)
}

func (a *API) exportCoupons(w http.ResponseWriter, req *http.Request, in *ExportWanted) {
	p, campaign := principal(req.Context()), in.Campaign
	if err := checkCampaign(campaign); err != nil {
		a.refuse(w, err)
		return
	}
	ctx, end := a.session(w, req, a.slots.exports)
	if end == nil {
		return
	}
	defer end()
	if err := a.exists(ctx, campaign); err != nil {
		a.refuse(w, err)
		return
	}
	if err := a.record(ctx, audit.Export, audit.Coupons, campaign); err != nil {
		a.refuse(w, err)
		return
	}
	e := &exporting{api: a, stream: web.NewStream(w), campaign: campaign}
	e.form.Excel = in.CSV == "excel"
	if !p.Codes {
		e.form.Mask = replay.NewMask(a.MaskKey, false)
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="`+campaign+`.csv"`)
	out := bufio.NewWriterSize(w, 64<<10)
	e.rows = csv.NewWriter(out)
	err := e.all(ctx)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		a.Logger.Warn("an export was cut off", "campaign", campaign, "coupons", e.count, "err", err)
		panic(http.ErrAbortHandler) // an ordinary end would make an incomplete file look complete
	}
}

// exists returns the problem of a campaign that the read tables do not have.
func (a *API) exists(ctx context.Context, campaign string) error {
	if a.DB == nil {
		return web.New(web.Unavailable, ops.ErrNoTables.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	known := false
	if err := a.DB.QueryRow(ctx, `SELECT EXISTS (SELECT FROM scrip.campaign WHERE campaign = $1)`, campaign).Scan(&known); err != nil {
		return unavailable("the read tables cannot be read", err)
	}
	if !known {
		p := web.New(web.Code(wire.CampaignNotFound), "there is no campaign "+campaign+" in the read tables")
		p.Campaign = campaign
		return p
	}
	return nil
}

// exporting is one export.
type exporting struct {
	api      *API
	stream   web.Stream
	rows     *csv.Writer
	campaign string
	form     codescsv.Form
	count    int
}

func (e *exporting) all(ctx context.Context) error {
	_ = e.rows.Write(codescsv.Columns) // Error below returns a failure
	for place := int64(0); ; {
		page, err := e.page(ctx, place)
		if err != nil {
			return err
		}
		e.stream.Writing(streamWait)
		for i := range page {
			c := &page[i]
			_ = e.rows.Write(e.form.Fields(&codescsv.Row{Campaign: c.Campaign, N: c.N, Code: c.Code, CustomerID: c.CustomerID, Status: c.Status,
				ClaimedAt: c.ClaimedAt, ExpiresAt: c.ExpiresAt, RedeemedCount: c.RedeemedCount, RedeemedAt: c.RedeemedAt}))
		}
		e.rows.Flush()
		if err := e.rows.Error(); err != nil {
			return err
		}
		e.count += len(page)
		if len(page) < exportPage {
			return nil
		}
		place = int64(page[len(page)-1].N)
	}
}

func (e *exporting) page(ctx context.Context, after int64) ([]Coupon, error) {
	ctx, cancel := context.WithTimeout(ctx, streamWait)
	defer cancel()
	return e.api.query(ctx, ofCampaign, e.campaign, e.campaign, after, exportPage, nil)
}
