package codescsv

import (
	"strconv"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/replay"
)

// Columns are those of an export.
var Columns = []string{"campaign", "n", "code", "customer_id", "status", "claimed_at", "expires_at", "redeemed_count", "redeemed_at"}

// Row is one coupon of an export.
type Row struct {
	Campaign      string     `json:"campaign"`
	N             uint32     `json:"n"`
	Code          string     `json:"code"`
	CustomerID    string     `json:"customer_id"`
	Status        string     `json:"status"`
	ClaimedAt     *time.Time `json:"claimed_at"`
	ExpiresAt     *time.Time `json:"expires_at,omitempty"`
	RedeemedCount uint32     `json:"redeemed_count"`
	RedeemedAt    *time.Time `json:"redeemed_at,omitempty"`
}

// Form is how an export is written.
type Form struct {
	Mask *replay.Mask // nil = all in clear
}

// Hide masks the code and the customer.
func (f *Form) Hide(r *Row) {
	if f.Mask != nil {
		r.Code, r.CustomerID = f.Mask.Code(r.Code), f.Mask.Customer(r.CustomerID)
	}
}

// Fields are a row in the order of the columns.
func (f *Form) Fields(r *Row) []string {
	stamp := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	number := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	f.Hide(r)
	return []string{r.Campaign, number(r.N), r.Code, r.CustomerID, r.Status, stamp(r.ClaimedAt), stamp(r.ExpiresAt), number(r.RedeemedCount), stamp(r.RedeemedAt)}
}

// AppendCodes appends rows campaign,n,code of coupons from, from+1 …, none of whose fields needs quotes.
func AppendCodes(dst []byte, campaign string, from uint32, codes []string, header bool) []byte {
	if header {
		dst = append(dst, PrintedHeader...)
	}
	campaign = replay.Harmless(campaign)
	for i, code := range codes {
		dst = append(append(dst, campaign...), ',')
		dst = append(strconv.AppendUint(dst, uint64(from)+uint64(i), 10), ',')
		dst = append(append(dst, replay.Harmless(code)...), '\n')
	}
	return dst
}

// PrintedHeader is the header row of a file of printed codes.
const PrintedHeader = "campaign,n,code\n"
