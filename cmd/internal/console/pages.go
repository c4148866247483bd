package console

import "slices"

// pages is the table of pages, in the order of the navigation.
var pages = slices.Concat(campaignPages, operatePages, managePages)

// acts is the table of acts.
var acts = slices.Concat(campaignActs, operateActs, manageActs)
