// Command journey uses a client that was generated from the OpenAPI document: an operator creates a campaign and changes it,
// support finds and voids a coupon. The test beside it copies it to the generated client and runs it.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	ctx := context.Background()
	operator, support := as(os.Getenv("OPERATOR")), as(os.Getenv("SUPPORT"))
	key := "create-summer"

	made, err := operator.CreateCampaignWithResponse(ctx, &CreateCampaignParams{IdempotencyKey: &key}, CreateCampaign{Campaign: "summer", Codes: 100})
	must(err == nil && made.StatusCode() == http.StatusCreated && made.JSON201.Campaign == "summer", made, err)
	again, err := operator.CreateCampaignWithResponse(ctx, &CreateCampaignParams{IdempotencyKey: &key}, CreateCampaign{Campaign: "summer", Codes: 100})
	must(err == nil && again.StatusCode() == http.StatusOK, again, err)

	etag, category := again.HTTPResponse.Header.Get("ETag"), "food"
	updated, err := operator.UpdateCampaignWithResponse(ctx, "summer", &UpdateCampaignParams{IfMatch: etag}, UpdateCampaign{Category: &category})
	must(err == nil && updated.StatusCode() == http.StatusOK && *updated.JSON200.Category == category, updated, err)
	late, err := operator.UpdateCampaignWithResponse(ctx, "summer", &UpdateCampaignParams{IfMatch: etag}, UpdateCampaign{Category: &key})
	must(err == nil && late.StatusCode() == http.StatusPreconditionFailed && late.ApplicationproblemJSON412.Code == "version_mismatch", late, err)

	customer := "ann"
	var coupon Coupon
	for end := time.Now().Add(2 * time.Minute); ; { // the read tables follow the log
		found, err := support.ListCouponsWithResponse(ctx, &ListCouponsParams{CustomerId: &customer})
		must(err == nil && found.StatusCode() == http.StatusOK && time.Now().Before(end), found, err)
		if len(found.JSON200.Items) == 1 {
			coupon = found.JSON200.Items[0]
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	must(coupon.Code != os.Getenv("CODE"), coupon, nil) // it is masked, so the coupon is voided by its other name
	void, err := support.VoidCouponWithResponse(ctx, &VoidCouponParams{}, VoidCouponJSONRequestBody{Campaign: &coupon.Campaign, N: &coupon.N})
	must(err == nil && void.StatusCode() == http.StatusOK && void.JSON200.Status == "voided", void, err)
	refused, err := support.EndCampaignWithResponse(ctx, "summer", &EndCampaignParams{})
	must(err == nil && refused.StatusCode() == http.StatusForbidden, refused, err)
	fmt.Println("done")
}

// as is a client with a key.
func as(key string) *ClientWithResponses {
	c, err := NewClientWithResponses(os.Getenv("URL"), WithRequestEditorFn(func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))
	must(err == nil, nil, err)
	return c
}

func must(ok bool, got any, err error) {
	if !ok {
		panic(fmt.Sprintf("%+v, %v", got, err))
	}
}
