"""The method and the remedy for each test of a contract, for the messages of `loopscale check`."""

from typing import NamedTuple


class Remedy(NamedTuple):
    method: str
    """The method or setting whose line a message names; empty for the line of the class."""
    text: str


_OUTPUT = Remedy(
    "forward", "return predictions [steps, batch, length, dim_out], for the steps `first` to `steps`"
)
_CAUSAL = Remedy(
    "forward",
    "let every position read itself and earlier positions only, or declare `looks_ahead` of an encoder",
)
_SEED = Remedy(
    "build", "draw every weight from the given generator, in one order, and use no global generator"
)
_TRAINED = Remedy("forward", "use every weight in the prediction without detach(), or take the weight out")
_STATE = Remedy("states", "return the states before the read-out, [steps, batch, length, width]")
_PURE = Remedy("forward", "compute with the tensors' own type and device, and draw no number in a pass")
_COUNTED = Remedy(
    "forward", "use operations of PyTorch that FLOPs are counted for, and no values of the tokens in `if`"
)
_PLAIN = Remedy("", "let every setting be a plain value, and change no setting after validation")
_DRAWN = Remedy("sample", "draw every number of every prompt from `rng`, and nothing else")
_SHAPES = Remedy(
    "sample", "return float32 tokens and targets with the shapes that `prompt` and `seen` declare"
)
_VARIANCE = Remedy(
    "variance", "return the mean square of the targets in `variance`, and in `variances` if queries differ"
)
_ERROR = Remedy("raw_error", "return one finite number per query that depends on prediction and target alone")
_EASIER = Remedy(
    "easier", "set the coordinates above `dim` to 0, keep the size of the tokens, and check both sizes"
)
_PREFIX = Remedy("predict", "use for a query only its own input and the pairs before the query")
_STEPS = Remedy("predict", "return float64 predictions [steps, batch, queries, dim_out], one after each step")

REMEDIES = {
    "models": {
        "test_the_output_has_a_prediction_at_every_position_after_every_step": _OUTPUT,
        "test_answers_are_the_outputs_at_the_queries_with_the_same_gradients": Remedy(
            "answers", "return the same as `forward` at the queries, or leave `answers` out"
        ),
        "test_there_is_a_state_at_every_position_after_every_step": _STATE,
        "test_a_decoder_has_earlier_outputs_and_states_independent_of_later_tokens": _CAUSAL,
        "test_a_shorter_prompt_gives_the_first_outputs_of_a_longer_prompt": _CAUSAL,
        "test_an_encoder_has_outputs_that_depend_on_later_tokens": Remedy(
            "looks_ahead", "let every position read all positions, or declare no `looks_ahead`"
        ),
        "test_an_encoder_without_positions_is_equivariant": Remedy(
            "forward", "without positions, treat all positions alike"
        ),
        "test_earlier_tokens_change_later_outputs": Remedy(
            "forward", "let later positions read earlier positions"
        ),
        "test_more_steps_do_not_change_the_first_steps": Remedy(
            "forward", "let a step depend on the steps before, and not on the number of steps"
        ),
        "test_every_weight_is_initialised_and_trained": _TRAINED,
        "test_every_weight_is_trained_by_the_last_steps_alone": Remedy(
            "truncatable", "let the last steps use every weight, or return False in `truncatable`"
        ),
        "test_the_seed_determines_the_weights": _SEED,
        "test_build_and_forward_do_not_use_the_global_generator": _SEED,
        "test_supervising_only_the_last_steps_gives_the_same_outputs": _OUTPUT,
        "test_without_truncation_the_gradient_flows_through_earlier_steps": Remedy(
            "forward", "stop the gradient of earlier steps only with `truncate`"
        ),
        "test_invalid_steps_are_an_error": Remedy(
            "forward", "call `self.check(steps, first)` at the beginning"
        ),
        "test_the_depth_is_known_before_the_net_is_built": Remedy(
            "depth",
            "return the number of layers in `depth`, or None for a looped net, in the model and in the net",
        ),
        "test_a_round_trip_through_plain_data_changes_nothing": _PLAIN,
        "test_float64_nets_compute_in_float64": _PURE,
        "test_autocast_leaves_the_output_in_float32": _PURE,
        "test_a_model_can_be_built_and_run_on_the_meta_device": _TRAINED,
        "test_unknown_settings_and_heads_that_do_not_divide_the_width_are_errors": _PLAIN,
    },
    "costs": {
        "test_counted_flops_equal_the_flops_of_torch": _COUNTED,
        "test_the_number_of_parameters_counts_the_weights_with_a_gradient": _TRAINED,
        "test_memory_is_within_a_factor_of_two_of_what_torch_allocates": Remedy(
            "kept_factor",
            "return in `kept_factor` the memory saved for the backward pass over that of the operations",
        ),
        "test_training_for_some_steps_gives_finite_weights_and_the_same_weights_again": _SEED,
    },
    "tasks": {
        "test_the_generator_determines_the_prompts": _DRAWN,
        "test_prompts_have_the_declared_shape": _SHAPES,
        "test_prompts_differ_from_one_another": _DRAWN,
        "test_predicting_zero_costs_one_at_every_query": _VARIANCE,
        "test_error_is_raw_error_over_the_raw_error_of_predicting_zero": _VARIANCE,
        "test_the_loss_has_a_gradient_at_every_query": Remedy(
            "loss", "return a loss with a gradient at every query, as the error or a substitute"
        ),
        "test_measures_have_one_finite_number_per_prompt_and_step": Remedy(
            "measures", "return for every name a finite tensor [*steps, batch]"
        ),
        "test_outcomes_have_their_names_and_one_number_per_game": Remedy(
            "outcomes",
            "return the names of `outcome_names`, a finite number per game (or per game and query), and the same at a "
            "second call",
        ),
        "test_the_raw_error_is_the_squared_distance_to_the_target": _ERROR,
        "test_noise_only_adds_its_variance": Remedy(
            "sample", "add noise of the variance σ² to the targets, and σ² to `variance` and `noise_variance`"
        ),
        "test_no_prompt_contains_a_target_before_its_query": Remedy(
            "sample", "show the target of a query only in tokens after the query"
        ),
        "test_survives_a_round_trip_through_yaml": _PLAIN,
        "test_an_easier_task_keeps_the_size_of_its_tokens": _EASIER,
        "test_an_easier_task_of_full_size_is_the_task": _EASIER,
        "test_predicting_zero_costs_one_in_an_easier_task": Remedy(
            "variance",
            "let `variance` follow the coordinates at work under a curriculum, as `at_work` gives them",
        ),
        "test_easier_refuses_sizes_below_one_and_above_the_task": _EASIER,
        "test_invalid_values_are_refused_with_the_name_of_the_setting": Remedy(
            "", "give the setting a type with limits, such as PositiveInt, and the class allow_inf_nan=False"
        ),
        "test_a_task_names_its_floor_or_a_reference": Remedy(
            "floor_rule",
            "name in `floor_rule` a solver that accepts the prompts and that the rule fits, or return None",
        ),
        "test_no_other_fixed_guess_is_better": Remedy(
            "fixed_guess", "return in `fixed_guess` the mean of the targets at every query"
        ),
    },
    "solvers": {
        "test_there_is_a_task_for_every_solver": Remedy(
            "solves", "name in `solves` the class of `Batch.problem` of a task, such as Regression"
        ),
        "test_no_solver_accepts_an_unknown_problem": Remedy(
            "accepts", "return False for problems of other classes"
        ),
        "test_predictions_are_float64_for_every_step_and_query": _STEPS,
        "test_predictions_are_finite_after_many_steps": Remedy(
            "predict", "keep the predictions finite, also after convergence and before the first pair"
        ),
        "test_more_steps_do_not_change_the_first_steps": _STEPS,
        "test_prediction_before_the_first_pair_is_zero": Remedy(
            "predict", "predict 0 before the first pair, or return True in `guesses_from_prior`"
        ),
        "test_predictions_do_not_depend_on_the_targets": Remedy(
            "predict", "read `batch.problem`, never `batch.targets`"
        ),
        "test_a_prediction_depends_only_on_earlier_pairs_and_its_own_input": _PREFIX,
        "test_a_prediction_does_not_depend_on_the_batch": Remedy(
            "predict", "treat every prompt of the batch alone"
        ),
        "test_a_solver_that_reads_hidden_variables_is_an_oracle": Remedy(
            "predict", "declare oracle = True, or read only what the prompt shows"
        ),
        "test_survives_a_round_trip_through_yaml": _PLAIN,
        "test_no_other_solver_beats_a_bayes_predictor_by_more_than_its_bound": Remedy(
            "floor_rule", "declare the floor or the room that holds: another solver has a lower error"
        ),
    },
}
"""Module of the contract -> name of a test -> remedy."""
MEMBERS_TO_COMPARE = {
    "axes": "questions/axes/prompts.py",
    "bounds": "theory/bounds/newton.py",
    "clusters": "cluster/slurm.py",
    "constructions": "theory/constructions/newton.py",
    "figures": "analysis/figures/emergence.py",
    "forms": "stats/forms/power.py",
    "optimizers": "optimizers/adamw.py",
    "schedulers": "studies/schedulers/median.py",
    "searches": "studies/searches/random.py",
    "stores": "records/stores/database.py",
}
"""Module of the contract -> a member that keeps the contract, for families without remedies of their own."""


def remedy_of(module: str, test: str) -> Remedy:
    """The remedy of a test; for other families, a member to compare with."""
    if module in MEMBERS_TO_COMPARE:
        return Remedy("", f"compare the class with loopscale/{MEMBERS_TO_COMPARE[module]}")
    return REMEDIES[module][test]
