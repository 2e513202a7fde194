"""Salts: one seed gives independent streams of random numbers, `np.random.default_rng([seed, SALT])`, one a
purpose.

No two purposes share a number, and a number never changes: both would change answers.
"""

START_ACTIONS = 0x57  # the policy's actions at the start states
FOLDS = 0xF0  # which units LSPE learns on and which it evaluates on
TRAINING = 0xE5  # seeds of the second and later trainings
SOME_EPISODES = 0xAD  # episodes that an audit looks at
ACTION_SUPPORT = 0x5A
PREDICTABLE_ERROR = 0xA0
BOOTSTRAP = 0xB0
CONTRAST = 0xBE57  # simultaneous comparison of policies
IMAGE_SHIFTS = 0x5F
HELD_OUT_CURL = 0xC0
HELD_OUT_SPR = 0x59
IMAGINED = 0x1A  # a model's roll-outs from new start states
FAMILIAR = 0xFA  # logged pairs that imagined ones are compared with
FROM_ANYWHERE = 0x1E  # transitions at which a model is led along the log
FROM_STARTS = 0x57A  # episodes at whose start it is
VIEWS = 0x71E  # what the independent views of a question look at
LOCAL_LOG = 0x10C  # rows that stand for the log when a policy is guarded
HALTED = 0x4A17  # where a stochastic policy leaves the log's support
GUARDED = 0x6A2D  # the logged behaviour's draws where a guarded policy falls back on it
POLICIES_OF_A_STEP = 0x9011  # which of many policies a step of training looks at
ACTIONS_OF_A_STEP = 0xAC71  # which of many discrete actions stand for a policy in a step of training
MANY_ACTIONS = 0xAC7  # and in a pass over the log
STRESS = 0x57E5  # shuffles of the stress tests
