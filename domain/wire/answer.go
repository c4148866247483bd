package wire

// answer is a row of the table of answers to commands.
type answer struct {
	has, may []Field   // of the outcome when it is done, beside id, status, campaign and repeat
	refusals []Refusal // beside those of all commands
}

// answers has a row for each command; tests compare what lanes answer with it.
var answers = [numCommands]answer{
	CreateCampaign: {refusals: []Refusal{CampaignExists}},
	UpdateCampaign: {refusals: changeRefusals},
	PauseCampaign:  {refusals: changeRefusals},
	ResumeCampaign: {refusals: changeRefusals},
	EndCampaign:    {refusals: changeRefusals},
	ImportCodes:    {may: list(fCount), refusals: []Refusal{CampaignNotFound, CampaignEnded}},
	Claim: {has: list(fN, fCode, fCustomerID), may: list(fExpiresAt, fCouponStatus),
		refusals: []Refusal{CampaignNotFound, CampaignEnded, CampaignPaused, ClaimNotOpen, ClaimClosed, ClaimLimitReached, SoldOut}},
	Redeem: {has: list(fN, fCode, fOrderID, fRedeemedCount), may: list(fCustomerID, fExpiresAt, fBenefit, fCouponStatus),
		refusals: []Refusal{CodeNotFound, RedemptionRolledBack, NotHolder, Voided, CampaignPaused, Expired, AlreadyRedeemed, RedemptionLimitReached, LimitReached}},
	Rollback: {has: list(fN, fCode, fOrderID), may: list(fCustomerID, fExpiresAt, fRedeemedCount, fCouponStatus),
		refusals: []Refusal{CodeNotFound, Outdated, NotHolder, NotRedeemed}},
	Void:   {has: list(fN, fCode), may: list(fExpiresAt), refusals: []Refusal{CodeNotFound}},
	Extend: {has: list(fN, fCode, fExpiresAt), may: list(fCouponStatus), refusals: []Refusal{CodeNotFound, Voided}},
	Remind: {has: list(fCustomerID, fKind, fBefore), may: list(fN, fDueAt),
		refusals: []Refusal{CampaignNotFound, Outdated, NotHolder, Voided, AlreadyRedeemed, CampaignEnded, TooLate, LimitReached}},
	Unremind: {has: list(fCustomerID, fKind, fBefore), may: list(fN),
		refusals: []Refusal{CampaignNotFound, Outdated, NotHolder, TooLate}},
	Allot: {has: list(fN, fCount, fBatch), may: list(fExpiresAt),
		refusals: []Refusal{CampaignNotFound, BatchExists, CampaignEnded, CampaignPaused, ClaimClosed, SoldOut}},
	Expire:    {may: list(fCount), refusals: []Refusal{CampaignNotFound}},
	RemindDue: {has: list(fKind, fDueAt, fBefore), may: list(fCount), refusals: []Refusal{CampaignNotFound}},
}

var changeRefusals = []Refusal{CampaignNotFound, Outdated, CampaignEnded, VersionMismatch}

// Refusals returns the refusals that the command may have.
func (t CommandType) Refusals() []Refusal {
	return append([]Refusal{Invalid, IdempotencyKeyReused, NotDurable}, answers[t].refusals...)
}
