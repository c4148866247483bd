package wire

// field is a name a command line may carry.
type field uint8

const (
	fUnknown field = iota
	fID
	fType
	fCampaign
	fCodes
	fPerCustomer
	fOpensAt
	fClosesAt
	fExpiresAt
	fValidFor
	fLateAfter
	fMaxRedemptions
	fPrefix
	fCategory
	fPriority
	fBenefit
	fCustomerID
	fAttributes
	fCode
	fOrderID
	fReason
	fKind
	fBefore
	fThrough
	fDueAt
	fThroughR
	fReadyAt
	numFields
)

var fieldNames = [numFields]string{"", "id", "type", "campaign", "codes", "per_customer", "opens_at", "closes_at", "expires_at",
	"valid_for", "late_after", "max_redemptions", "prefix", "category", "priority", "benefit", "customer_id", "attributes", "code",
	"order_id", "reason", "kind", "before", "through", "due_at", "through_r", "ready_at"}

// fieldKeys are the names as they stand in JSON behind another field.
var fieldKeys = func() (keys [numFields]string) {
	for f, name := range fieldNames {
		keys[f] = `,"` + name + `":`
	}
	return keys
}()

var settingFields = []field{fCodes, fPerCustomer, fOpensAt, fClosesAt, fExpiresAt, fValidFor, fLateAfter, fMaxRedemptions,
	fPrefix, fCategory, fPriority, fBenefit}

// fieldNamed is a switch, not a map: the compiler turns it into a few comparisons and it runs for every field.
func fieldNamed(name []byte) field {
	switch string(name) {
	case "id":
		return fID
	case "type":
		return fType
	case "campaign":
		return fCampaign
	case "codes":
		return fCodes
	case "per_customer":
		return fPerCustomer
	case "opens_at":
		return fOpensAt
	case "closes_at":
		return fClosesAt
	case "expires_at":
		return fExpiresAt
	case "valid_for":
		return fValidFor
	case "late_after":
		return fLateAfter
	case "max_redemptions":
		return fMaxRedemptions
	case "prefix":
		return fPrefix
	case "category":
		return fCategory
	case "priority":
		return fPriority
	case "benefit":
		return fBenefit
	case "customer_id":
		return fCustomerID
	case "attributes":
		return fAttributes
	case "code":
		return fCode
	case "order_id":
		return fOrderID
	case "reason":
		return fReason
	case "kind":
		return fKind
	case "before":
		return fBefore
	case "through":
		return fThrough
	case "due_at":
		return fDueAt
	case "through_r":
		return fThroughR
	case "ready_at":
		return fReadyAt
	}
	return fUnknown
}

type fieldSet uint32

func (s fieldSet) has(f field) bool { return s&(1<<f) != 0 }
func (s *fieldSet) add(f field)     { *s |= 1 << f }

func fields(fs ...field) (s fieldSet) {
	for _, f := range fs {
		s.add(f)
	}
	return s
}
