/* Options of any training program that several parts read; the others stand beside the code that reads them. */

#include "options.h"

#include "train/loop/option_rows.h"

/* clang-format off */
#define OF loader_options
static const lt_option loader_rows[] = {
{"Data", INT("limit-train-batches", limit_train_batches, 0, MANY), .value = "0", .common = true, .help = "batches per epoch at most; 0: all"},
{"Data", INT("limit-eval-batches", limit_eval_batches, 0, MANY), .value = "0", .help = "batches per evaluation at most, spread evenly over the data; 0: all"},
{"Data", INT("overfit-batches", overfit_batches, 0, MANY), .value = "0", .help = "train on the first batches only, unshuffled, without augmentation; evaluate on them too"},
};
OPTION_TABLE(lt_loader_options, loader_options, loader_rows)

#undef OF
#define OF training_options
static const lt_option training_rows[] = {
{"Training", INT("grad-accum", grad_accum, 1, 1000000), .value = "1", .also = "gradient-accumulation-steps", .common = true, .help = "micro-batches per update"},
{"Training", NUM("epochs", epochs, 0, 1e6), .value = "0", .also = "ep", .common = true, .help = "passes over the data, and length of the schedule; 0: what --max-steps makes, else 90"},
{"Training", INT("max-steps", max_steps, 0, MANY), .value = "0", .also = "max-iters", .common = true, .help = "stop after this many updates; 0: at the end of the epochs"},
{"Training", INT("seed", seed, 0, 9e15), .value = "0", .common = true, .help = "of initial values, order, augmentation"},
{"Training", NUM("clip-grad", clip_grad, 0, 1e30), .value = "0", .common = true, .help = "largest global norm of the gradient; 0: no limit"},
{"Training", NUM("ema-decay", ema_decay, 0, 1), .below = true, .value = "0", .common = true, .help = "keep an exponential moving average of the weights and evaluate it; 0: no"},
{"Training", PICK("state-dtype", state_dtype, "f32|bf16|int8"), .help = "what the optimizer's moments are kept in between updates; int8: in blocks of 128 with a scale each; factors and roots: --factor-dtype"},
{"Training", PICK("state-memory", state_memory, "any|adam"), .help = "adam: the optimizer's state fits into Adam's two moments in f32, by triangles, then factors and moments in fewer bytes, then smaller blocks; says what it chose"},
{"Training", PICK("amp", amp, "off|bf16|f16|tf32"), .common = true, .help = "dtype of activations; off: f32; tf32: off with --tf32 on; f16 (cuda, ref): with a loss scale that is halved after an overflow and doubled after 2000 steps without"},
{"Training", PICK("recompute", recompute, "off|cheap|auto"), .value = "cheap", .help = "cheap: make batch norm and relu outputs again in backward instead of keeping them; auto: off where a step without fits into the free memory of every rank's device (cpu: the machine's), twice as much as it is counted to need, else cheap: says which, and config.yaml has it, so that --resume repeats it"},
{"Training", PICK("on-nan", on_nan, "abort|skip"), .help = "what to do when a gradient is not finite (--amp f16: at a loss scale below 2^-14)"},
{"Training", BOOL("gradient-noise", gradient_noise), .help = "measure the gradient noise scale, in samples, into noise_scale of metrics.jsonl: about the batch above which more samples save few steps; with several ranks, or --grad-accum 2 and more"},
{"Training", BOOL("deterministic", deterministic), .help = "the same bits on the same build, CPU type and thread count"},
};
OPTION_TABLE(lt_training_options, training_options, training_rows)

#undef OF
#define OF lt_averaging_config
static const lt_option averaging_rows[] = {
{"Optimizer", PICK("iterate-averaging", kind, "off|schedule-free|primal"), .common = true, .help = "take gradients at one sequence of weights, evaluate and save a mean of iterates; schedule-free: of all, with --sched constant; primal: an exponential one; with either, momentum and beta1 are best 0"},
{"Optimizer", NUM("train-interp-coeff", train_interp_coeff, 1e-6, 1), .value = "0.8", .through = "opt-kwargs", .help = "how much of the mean is in the weights at which gradients are taken; the rest is the last iterate"},
{"Optimizer", NUM("eval-interp-coeff", eval_interp_coeff, 0, 1), .below = true, .value = "0.9", .through = "opt-kwargs", .help = "primal: how much of the last mean is in the mean"},
{"Optimizer", NUM("eval-coeff-lr-power", eval_coeff_lr_power, 0, 100), .value = "2", .through = "opt-kwargs", .help = "schedule-free: an iterate's weight is this power of its learning rate, so that those of a warm-up count less"},
{"Optimizer", BOOL("decay-of-y", decay_of_y), .through = "opt-kwargs", .help = "adamw, sgd without momentum: weight decay is of the weights at which gradients are taken, as in schedulefree's optimizers, not of the last iterate"},
};
OPTION_TABLE(lt_averaging_options, lt_averaging_config, averaging_rows)

#undef OF
#define OF evaluation_options
static const lt_option evaluation_rows[] = {
{"Evaluation", BOOL("eval", eval), .common = true, .help = "only evaluate --weights; the command evaluate is the same"},
{"Evaluation", TEXT("watch", watch), .meta = "RUN", .once = true, .help = "evaluate each checkpoint of a run that another process trains, with its settings, until it ends"},
{"Evaluation", NUM("watch-wait", watch_wait, 0, 1e9), .value = "0", .once = true, .help = "seconds that the run of --watch may take to begin"},
{"Evaluation", INT("eval-every", eval_every, -1, MANY), .value = "1", .common = true, .help = "epochs between evaluations; 0: only at the end; -1: never, as --watch does it"},
{"Evaluation", INT("update-bn", update_bn, -1, MANY), .value = "-1", .help = "with --iterate-averaging: batches of training data, on each rank, from which running statistics of batch norms are made anew for the averaged weights, before an evaluation or checkpoint; 0: those of training; -1: 50"},
};
OPTION_TABLE(lt_evaluation_options, evaluation_options, evaluation_rows)

#undef OF
#define OF output_options
static const lt_option output_rows[] = {
{"Output", TEXT("output", output), .alias = 'o', .meta = "DIR", .common = true, .help = "run folder: config, metrics, checkpoints, and at the end model.safetensors (averaged with --ema-decay)"},
{"Output", TEXT("resume", resume), .meta = "auto|PATH", .once = true, .common = true, .help = "go on from a checkpoint, which has the weights, whatever --weights says; auto: the latest in --output, if there is one"},
{"Output", PICK("data-changed", data_changed, "error|continue"), .once = true, .help = "with --resume within an epoch whose data has other files now: end with an error, or begin that epoch again with the new data"},
{"Output", BOOL("overwrite", overwrite), .once = true, .common = true, .help = "begin anew in a folder that holds a run, whose files are renamed to old-1/, old-2/ and so on there; without it and --resume such a folder is refused"},
{"Output", INT("checkpoint-every", checkpoint_every, 0, MANY), .value = "0", .help = "updates between checkpoints, besides those at the end of epochs; 0: none"},
{"Output", INT("keep", keep, 0, MANY), .value = "2", .help = "newest checkpoints of this run to keep, besides the best; 0: all"},
{"Output", PICK("progress", progress, "auto|bar|lines|off"), .common = true, .help = "auto: a bar on a terminal, else lines; LATHER_LOG=warn hides the library's notes"},
{"Output", INT("log-every", log_every, 1, MANY), .value = "50", .help = "updates between lines"},
{"Output", BOOL("verbose", verbose), .help = "show the table of Shampoo's blocks too, which is always in OUTPUT/blocks.txt"},
{"Output", BOOL("tensorboard", tensorboard), .value = "true", .help = "write TensorBoard events"},
{"Output", TEXT("profile", profile), .meta = "FILE", .once = true, .help = "write a trace for Perfetto, and print where the time went"},
};
OPTION_TABLE(lt_output_options, output_options, output_rows)

#undef OF
#define OF machine_options
static const lt_option machine_rows[] = {
{"Machine", TEXT("device", device), .value = "cpu", .common = true, .help = "cpu, ref (plain loops), cuda[:N]"},
{"Machine", INT("threads", threads, 0, 4096), .alias = 't', .value = "0", .common = true, .help = "compute threads; 0: as many as affinity and cgroup allow"},
{"Machine", PICK("tf32", tf32, "off|on"), .help = "cuda: on: products of f32 numbers round these to 10 bits of fraction, for speed"},
{"Machine", PICK("fused", fused, "auto|on|off"), .help = "cuda, cpu: batch norm's sums in the kernels of convolutions: where that is faster, wherever possible, nowhere"},
{"Machine", BOOL("graph", graph), .value = "true", .help = "cuda: record the work of an update once and replay it"},
{"Machine", PICK("run-ahead", run_ahead, "auto|off|on"), .help = "queue an update before the results of the one before it are read; auto: on devices with a queue, cuda"},
};
OPTION_TABLE(lt_machine_options, machine_options, machine_rows)
/* clang-format on */
