"""The names of the command line, Python, JSON and csv, each with unit and meaning, once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One name; the unit is "-" for counts, shares and words."""

    name: str
    unit: str
    meaning: str


_ROWS = """
schema | - | version of the layout of JSON and csv
phase | - | decode, prefill or colocated
feasible | - | whether the deployment or any plan keeps every constraint
reasons | - | constraints that are not kept
notes | - | what a reader must know of the machine, such as that it is announced
workload | - | name of the workload file
hardware | - | name of the hardware file
engine | - | name of the engine file
model | - | name of the model file
deployment | - | every value of --at, defaults filled in
operands | - | every value of --at of one operator, defaults filled in

ep | - | expert-parallel degree: dies of one instance
batch_per_die | - | requests that a die decodes at once
batch_per_npu | - | requests that an NPU decodes at once, 2 dies
tokens_per_npu | tokens | prompt tokens of one prefill batch on one NPU
tokens_per_die | tokens | tokens that one die sends or computes
tokens_per_request | - | query tokens of one request in one step
microbatches | - | parts of a batch that interleave: 1 serial, 2 two streams
attention_aic_share | - | share of the AIC cores that the attention stream gets
aic_share | - | share of the AIC cores that one operator gets
draft_tokens | - | draft tokens verified per step (MTP)
acceptance | - | probability that a draft token is accepted
kv_len | tokens | mean context of a request
prompt_len | tokens | tokens of one prompt
balance | - | balance of the experts: perfect, eplb or none
imbalance | - | load of the busiest die over the mean
redundant_experts | - | redundant copies of routed experts
scale_out | - | whether an instance may reach beyond one scale-up network
m | - | rows of one matrix product
n | - | columns of one matrix product
k | - | depth of one matrix product
groups | - | equal matrix products, one for each expert or head; groups of a ledger
precision | - | precision of the operands of a product
heads | - | attention heads
destinations | - | experts that a token is sent to
message_bytes | B | bytes of one message
library | - | EP library and mode
ranks | - | dies that take part in a collective
batch | - | requests at once: of an operator, of a decode die, of a prefill batch
positions | - | cached positions that a query token attends to
index_heads | - | heads of the indexer of sparse attention
index_dim | - | width of an index head
kv_heads | - | heads of the KV cache under grouped-query attention
head_dim | - | width of one attention head
tokens | tokens | tokens of the whole instance
hidden | - | width of the hidden state
intermediate | - | width inside one expert
experts | - | routed experts
top_k | - | experts of one token
rows | - | rows that streaming kernels work on; rows of a ledger
row_bytes | B | traffic of all kernels for one row
kernels | - | streaming kernels in a row
moved_bytes | B | traffic of one attention core
loads | - | copies of a model that cross the link of its bucket
hit_rate | - | chance that a model is in memory; share of prompt tokens in the cache
reuse | - | share of prompt tokens whose cache comes from the memory pool
plane | - | network of a transfer: rdma, ub or vpc; local: no transfer
streams | - | dies that send one request's KV cache at once

tpot_s | s | mean time per output token after the first, step time over tokens per step
ttft_s | s | time to first token: prefill; with pools apart KV transfer and first step too
step_time_s | s | one decode iteration
batch_time_s | s | one prefill batch; of a plan, with what it stores in the context cache
layer_time_s | s | one MoE layer, all microbatches
attention_stream_time_s | s | attention part of one MoE layer, one microbatch
expert_stream_time_s | s | expert part of one MoE layer, one microbatch
hidden_time_s | s | time of the terms that overlap hides: sum of terms - hidden = step or batch
kv_transfer_s | s | hand-over of one request's KV cache to decode
tokens_per_step | - | expected tokens per decode iteration and request
throughput_tokens_per_s_per_npu | tokens/s | per NPU: output tokens; input tokens for prefill
throughput_tokens_per_s | tokens/s | output tokens of the whole plan
requests_per_s | requests/s | requests that the plan serves
capacity_requests_per_s | requests/s | requests that one pool could serve alone
concurrency | - | requests in decode at once; in the instance, where it prefills as well
prompts | - | requests of a run to the end
output_len | tokens | tokens of one output, the first included
mixed_overlap | - | share of the shorter of prefill and decode that mixed iterations hide
prefill_microbatches | - | microbatches of prefill on an instance that decodes as well
prefill_time_s | s | time of a whole instance for one prompt
prefill_share | - | share of the time of an instance that prefill takes
longest_gap_s | s | longest gap between deliveries to a request: a step and a prefill before it
run_time_s | s | time of a run of a fixed number of requests, ramp and tail included
run_tokens_per_s_per_npu | tokens/s | output tokens of such a run over its time, per NPU
run_tpot_s | s | mean TPOT of the requests of such a run
run_ttft_s | s | mean TTFT of the requests of such a run
relative | - | requests per second over those of the best plan
bound_by | - | what limits: pool and term of a plan; part of a die's memory
objective | - | what the plan optimises: throughput, npus or latency
rate_requests_per_s | requests/s | request rate that the plan must serve
evaluated_candidates | - | candidates that were predicted; the others cannot be feasible
e2e_s | s | time from arrival to the last token
tpot_slack_s | s | what is left of the TPOT limit
ttft_p95_s | s | 95th percentile of the time to first token
ttft_arrivals_s | s | mean time to first token where the rate drifts as in the trace of `--arrivals`
ttft_slack_s | s | what is left of the TTFT limit
queue_time_s | s | mean time to the end of prefill, at the rate served, beyond that of a full batch
utilisation | - | share of the capacity that the rate uses
attention_tp | - | dies that share the heads of their requests in decode
expert_tp | - | dies that split the columns of their experts
context_parallel | - | parts of the sequence of a prompt in prefill; 0 as the engine has it
pipeline_stages | - | stages of the layers in prefill, each on its share of the dies
chunks | - | parts of a prefill batch that follow each other through the stages
balanced_chunks | - | whether these parts take equal time (1) or have equal tokens (0)
kv_precision | - | precision of the KV cache
binding | - | limit that costs the plan most requests per second
marginals | - | what single changes would be worth to the best plan
change | - | one single change
runner_up | - | what the second plan trades against the first
serving | - | disaggregated: pools of prefill and of decode; colocated: instances do both
colocated | - | ranked plans whose instances prefill and decode
frontier | - | most requests per second as a function of TPOT
cache | - | context cache of a plan: nodes whose DRAM holds it, what it finds and moves
limit_nodes | - | most nodes that may lend DRAM to the context cache
capacity_tokens | tokens | tokens whose KV cache the context cache holds
capacity_blocks | - | the same in blocks of the engine's size
retention_s | s | time for which a token stays in the cache if nobody asks for it
load_bytes_per_s | B/s | loads from the context cache, all nodes
load_limit_bytes_per_s | B/s | what the nodes of the cache can send
dram_bytes_per_s | B/s | loads and stores of the context cache
dram_limit_bytes_per_s | B/s | what the DRAM of the nodes of the cache can move
mixed | - | best mix of decode instances of different sizes
decode_instances | - | decode instances of every kind
prefill_instances | - | prefill instances
decode_ep | - | expert-parallel degree of a decode instance
decode_npus | - | NPUs of all decode instances
prefill_npus | - | NPUs of all prefill instances
varied | - | input that --vary changes
weakest_inputs | - | inputs whose ranges move the request rate of the winner most
requests_per_s_change | - | relative change of the request rate; _low and _high at the ends of a range
rank | - | place of the plan, 1 the best
plans | - | ranked plans
decode | - | decode instances of a plan
prefill | - | prefill instances of a plan
instances | - | equal instances of a pool
npus | - | NPUs (packages of 2 dies)
dies | - | dies (half an NPU)
slo | - | limits that every plan keeps
tpot | s | limit of the time per output token
ttft | s | limit of the time to first token
candidates | - | deployments evaluated
feasible_candidates | - | deployments that keep every constraint
rejected | - | deployments that each constraint forbids; one may be counted twice
infeasible | - | why there is no plan
constraint | - | the constraint that no candidate keeps
nearest | - | the candidate that misses it least
hint | - | the smallest change that helps
elapsed_s | s | time of the evaluation

terms | - | named parts of a step or batch
name | - | name of a term, an operator or a number
time_s | s | time of a term, all its executions
total_time_s | s | all executions; of an explanation, the step or batch
share | - | part of the sum of all terms, or of the memory of a die
flop | FLOP | arithmetic, a count
bytes | B | traffic to device memory; for communication, over the fabric
bound | - | what limits a term: compute, memory, fabric or latency
parts_s | s | times that compete inside a term
efficiency | - | efficiencies and overheads that an operator used, with their sources

memory | - | ledger of the device memory of one die
capacity_bytes | B | device memory of a die; DRAM that the context cache may fill
weights_bytes | B | weights of a die
kv_cache_bytes | B | KV cache of the requests of a die
buffers_bytes | B | buffers of exchange and activations
reserve_bytes | B | memory that the engine keeps
free_bytes | B | what is left; negative where it does not fit
parts_bytes | B | weights and buffers by what they hold

smallest | - | the smallest instance that holds the load
smallest_of_nodes | - | the smallest instance of whole nodes that holds the load
size | - | dies of an instance, with the NPUs and nodes that they are on
nodes | - | nodes, of 8 NPUs each on CloudMatrix384
ledger | - | where the memory of a die goes, by part; adds up to the capacity
size_bytes | B | memory that one part takes of a die
largest_batch | - | most requests of the context asked for: of a die, or prompts of a batch
longest_context | tokens | longest context of the batch asked for
lever | - | the setting whose change allows the largest batch
by_context | - | frontier: the largest batch for each context
by_batch | - | frontier: the longest context for each batch
context | tokens | context of a request: kv_len in decode, prompt_len in prefill
requests | - | requests of the whole instance at once
what_ifs | - | what single changes would give

a | - | the first side of a comparison
b | - | the second side of a comparison
differences | - | what is not the same on both sides
figures | - | totals on both sides
pools | - | prefill and decode pools on both sides
ratio | - | B over A
difference_s | s | B less A
npu_time_s | s | time of a term, in NPU-seconds per token
npu_difference_s | s | B less A, in NPU-seconds per token
npu_share | - | part of the difference in NPU-seconds per token
main_term | - | the term that explains most of the difference
prediction | - | everything that is predicted of one side

case | - | name of a case of cm384 check
cases | - | cases of a check, each with what changed in it
cases_file | - | file of the cases
golden_file | - | file of the golden numbers
golden | - | pinned value, in SI units
now | - | value today, in SI units
delta | - | relative change from golden to now
status | - | same, moved, new or missing
same | - | numbers that are as pinned
moved | - | numbers that are not as pinned
new | - | numbers that are not pinned yet
missing | - | pinned numbers that are there no more
changes | - | every number of a check, the largest change first
cause | - | what changed beneath a moved number: data, case or code
changed | - | data files that say something else since the pin
versions | - | versions of cm384 that pinned the numbers
old_version | - | data or installation that is compared with
new_version | - | data or installation that is compared
deployments | - | random deployments of a comparison
compared | - | deployments that fit the memory in either version
seed | - | seed of the random deployments
lost | - | deployments that only the old version can predict
gained | - | deployments that only the new version can predict
fits_no_more | - | deployments that fitted the memory in the old version only
fits_now | - | deployments that fit the memory in the new version only
only_old | - | data files of the old version only
only_new | - | data files of the new version only
data_changes | - | numbers and words in which the data files of two versions differ
file | - | name of a data file
old_value | - | value in the old version, with its unit
new_value | - | value in the new version, with its unit
quantities | - | how every quantity changed, the largest change first
unchanged | - | share of the deployments that are the same within 1e-9
median | - | median of the relative changes
p95 | - | relative size that 95 % of the changes stay below
largest | - | largest relative change, with its sign
worst | - | command that predicts the deployment with the largest change

term | - | explanation of one term
operators | - | operators inside a term; operator rows of a ledger
executions | - | times that a step or batch runs an operator
laws | - | evaluations of laws inside a term
law | - | name of a law
operator | - | operator that evaluated a law
summary | - | what a law says, in one line; what all rows of a ledger say
formula | - | LaTeX of a law
result | - | value of a law, or the plan under one value of --vary
references | - | publications behind a law
numbers | - | numbers of data files that were read
path | - | place of a number in its data file
value | - | a number in its own unit, an SI operand, or the input that --vary changes
unit | - | unit of a value
per | - | what a number counts for: die, npu, node ...
source | - | where a number was read
kind | - | defined, vendor, measured, fitted, secondary or assumed
confidence | - | A two readings of a primary, B one, C secondary or derived, D assumed
range | - | plausible range of a number
note | - | remark on a number
symbol | - | LaTeX symbol of an operand
meaning | - | what an operand is
key | - | key of a reference in the bibliography
place | - | table or section of a reference
title | - | title of a reference
ref | - | address of a reference

id | - | name of a row
group | - | group of rows, such as decode or operators.gemm
subject | - | what a row measures: a step, a batch, a run, caching, loading or an operator
at | - | deployment or sizes of a row, as --at takes them
against | - | the other side of a ratio: quantity against over quantity at
quantity | - | which quantity of the subject a row measures
published | - | published value of a row, in its unit
predicted | - | predicted value, in the unit of the row; _low and _high of 80 %
error | - | signed relative error: predicted over published, less 1; 0 within an open span
band | - | largest relative error that a row may have
within_band | - | whether the error stays in the band
open | - | what is predicted at the ends of what a source leaves open: _low and _high
within_interval | - | whether the 80 % interval holds the published value; how many rows it does
used_for_fit | - | whether a row fitted a constant or is an input: no evidence then
tier | - | how good the source of a row is, A to D
reason | - | why a row cannot be predicted
bias_error | - | mean of the signed errors
median_error | - | median of the absolute errors
mean_error | - | mean of the absolute errors
worst_error | - | the signed error that is largest
worst_id | - | the row with that error
outside_band | - | rows that leave their band
models | - | errors of steps, batches and runs by model
engines | - | errors of steps, batches and runs by engine
predicted_rows | - | rows that are predicted
fitted_rows | - | predicted rows that fitted a constant or are an input
totals | - | errors of all rows but inputs
coverage | - | how many never-fitted rows their 80 % intervals hold
targets | - | what the model is to show
measure | - | how a target is measured, such as mean, median or worst error
measured | - | what was measured for a target; _low and _high where it is a span
bar | - | the ends between which a target is met
met | - | whether a target is met
leave_one_out | - | errors of rows, each under a fit that never saw it
stages | - | groups of constants that are fitted together
stage | - | name of a group of constants that are fitted together
constants | - | constants of a stage
before | - | value of a constant before the fit, in the SI unit beside it
after | - | value of a constant after the fit
standard_error | - | standard error of a fitted constant
identified | - | whether the rows tell the constant; else it stays at its prior
at_bound | - | whether a constant ended at one of its bounds
correlated | - | pairs of constants that the rows can hardly tell apart
first | - | one constant of such a pair
second | - | the other constant of such a pair
correlation | - | correlation of the two
row_ids | - | rows of a stage
errors_before | - | errors before the fit
errors_after | - | errors after the fit
unused_ids | - | rows to which no constant is fitted
effects | - | inputs with a range and what it changes, largest first
residual | - | error of the model itself on measured rows like this, 80 %, log space

effect | - | relative change of the answer at the low and the high end of a range
"""

GLOSSARY = tuple(
    Entry(*(cell.strip() for cell in row.split(" | "))) for row in _ROWS.splitlines() if row.strip()
)
"""Every name, in the order of the reports."""
