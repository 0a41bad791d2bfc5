// SPDX-License-Identifier: GPL-2.0-only
//
// bounded: moves at most one batch per hold of the zone lock, on all four paths.
//
// A refill (rmqueue_bulk) may move up to 63 << 5 = 2016 pages in one hold. So may a
// spill, a decay and a drain (all in free_pcppages_bulk). Every other CPU that needs the
// zone lock waits for the whole hold. With this patch, the lock is released and taken
// again after at most zone->pageset_batch pages. A single block larger than a batch is
// moved in a separate hold.
//
// The pcp lock is not released meanwhile, so the page lists cannot change.
//
// Apply to: mm/page_alloc.c
// Expect: 3 zone_hold_next

// The new function is inserted after free_pages_prepare(). Inserting it before the next
// function would separate that function from its comment.
@ helper @
identifier free_pages_prepare =~ "^free_pages_prepare$";
type T;
typedef bool;
@@
T free_pages_prepare(...) { ... }
+
+static bool zone_hold_next(struct zone *zone, unsigned long *flags,
+			   int *held, int nr_pages)
+{
+	/*
+	 * Called before each block of a bulk operation under zone->lock. *held
+	 * pages were moved in this hold, and the block has nr_pages more. Returns
+	 * true if the lock was released and taken again, in which case the free
+	 * lists may have changed.
+	 */
+	bool full = *held && *held + nr_pages > READ_ONCE(zone->pageset_batch);
+
+	if (full) {
+		spin_unlock_irqrestore(&zone->lock, *flags);
+		spin_lock_irqsave(&zone->lock, *flags);
+		*held = 0;
+	}
+	*held += nr_pages;
+	return full;
+}

// Spill, decay and drain.
@ bulk_free depends on helper @
identifier zone, flags, page, list;
symbol nr_pages, pcp_list;
@@
 static void free_pcppages_bulk(struct zone *zone, ...)
 {
 ...
 unsigned long flags;
+int held = 0;
 <+...
+zone_hold_next(zone, &flags, &held, nr_pages);
 page = list_last_entry(list, struct page, pcp_list);
 ...+>
 }

// Refill. rmqm caches a fact about the free lists that is valid only while the lock is
// held.
@ bulk_alloc depends on bulk_free @
identifier zone, order, rmqm, flags, page, rmqueue =~ "^__rmqueue$";
expression list ES;
@@
 static int rmqueue_bulk(struct zone *zone, unsigned int order, ...)
 {
 enum rmqueue_mode rmqm = RMQUEUE_NORMAL;
 unsigned long flags;
+int held = 0;
 ...
 for (...; ...; ...) {
-struct page *page = rmqueue(ES);
+struct page *page;
+
+if (zone_hold_next(zone, &flags, &held, 1 << order))
+	rmqm = RMQUEUE_NORMAL;
+page = rmqueue(ES);
 ...
 }
 ...
 }
