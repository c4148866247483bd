package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/codescsv"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

func (a *API) allotmentRoutes() {
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: allotments, ID: "listAllotments", Tag: "codes",
		Summary: "List the allotments of a campaign", Operation: access.OpAllot}}, a.listAllotments)
	readStream(a, Route{Method: http.MethodGet, Path: allotments + "/{batch}/codes", ID: "printCodes", Tag: "codes", Summary: "Get the codes of an allotment as CSV",
		About: "By number, made from the code key. from_n goes on with a file that was cut off: the number after its last whole row, and no header row then. " +
			"Keys without the right to see codes are refused. Each request is recorded in the audit stream.",
		Operation: access.OpExportCodes},
		huma.Operation{Responses: answer("200", "CSV with a header row: campaign, n, code.", map[string]*huma.MediaType{"text/csv": {Schema: text("CSV in UTF-8.")}})},
		a.printCodes)
}

// AllotmentsWanted selects allotments.
type AllotmentsWanted struct {
	OneCampaign
	ops.Paging
}

func (a *API) listAllotments(ctx context.Context, in *AllotmentsWanted) (out ops.Page[domain.AllotmentView], err error) {
	if err := checkCampaign(in.Campaign); err != nil {
		return out, err
	}
	ends := a.Ops.Cursors.Of("allotments", principal(ctx), in)
	after, err := ends.Open(in.After)
	if err != nil {
		return out, err
	}
	out.Items, out.Next, err = a.Queries.Allotments(ctx, in.Campaign, client.Page{Limit: in.Limit, After: after})
	if err != nil {
		return out, unanswered("the list of allotments", err)
	}
	out.Next = ends.Seal(out.Next)
	return out, nil
}

// CodesWanted names an allotment.
type CodesWanted struct {
	OneCampaign
	Batch string `json:"batch" maxLength:"64" doc:"The name of the allotment."`
	FromN uint32 `json:"from_n,omitempty" minimum:"1" maximum:"1000000000" doc:"The first coupon of the file; absent = the first of the allotment."`
}

func (a *API) printCodes(w http.ResponseWriter, req *http.Request, in *CodesWanted) {
	if !principal(req.Context()).Codes {
		web.New(web.Forbidden, "a key without the right to see codes may not print them").Write(w)
		return
	}
	if err := checkCampaign(in.Campaign); err != nil {
		a.refuse(w, err)
		return
	}
	ctx, end := a.session(w, req, a.slots.exports)
	if end == nil {
		return
	}
	defer end()
	stream, begun := web.NewStream(w), false
	err := a.Queries.Print(ctx, in.Campaign, in.Batch, in.FromN, func(from uint32, codes []string) error {
		if !begun {
			if err := a.record(ctx, audit.Export, "codes.print", in.Campaign+" "+in.Batch+" from "+strconv.FormatUint(uint64(from), 10)); err != nil {
				return err
			}
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			w.Header().Set("Content-Disposition", `attachment; filename="`+in.Campaign+"-"+in.Batch+`.csv"`)
		}
		stream.Writing(streamWait)
		_, err := w.Write(codescsv.AppendCodes(nil, in.Campaign, from, codes, !begun && in.FromN == 0))
		begun = true
		return err
	})
	switch {
	case err != nil && begun:
		a.Logger.Warn("the codes of an allotment were cut off", "campaign", in.Campaign, "batch", in.Batch, "err", err)
		panic(http.ErrAbortHandler) // an ordinary end would make an incomplete file look complete
	case err != nil:
		a.refuse(w, unanswered("allotment "+in.Batch, err))
	}
}
